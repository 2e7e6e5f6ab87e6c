"""Pages of tables beside the reports, with their look: the index over all studies, and comparisons of two."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from markupsafe import Markup

from servelab.files import write_text
from servelab.report.table import Table

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal colours and other control characters, which log lines may hold."""


@dataclass(frozen=True)
class Section:
    """A heading with a text and a table; one that is `folded` opens on a click."""

    heading: str
    table: Table
    text: str = ""
    kind: str = "facts"
    """How the style sheet sets the table: `facts` or `figures`, whose cells stand to the right."""
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A title, a sentence that says it all, and sections. Addresses in its tables are relative to the page."""

    title: str
    lead: str
    sections: list[Section] = field(default_factory=list)
    remark: str = ""


def write_page(page: Page, html: Path, markdown: Path) -> None:
    """Writes the page as one self-contained HTML file and as GitHub-flavoured Markdown."""
    write_text(html, render_html(page))
    write_text(markdown, render_markdown(page))


def render_html(page: Page) -> str:
    """One file with its style and script in it; readable on a phone, light and dark, and without the script."""
    environment = _environment()
    assert environment.loader is not None
    for name, file in (("style", "report.css"), ("script", "report.js")):
        text = environment.loader.get_source(environment, file)[0]
        environment.globals[name] = Markup(text)  # noqa: S704 (our own file)
    return environment.get_template("page.html.j2").render(page=page)


def render_markdown(page: Page) -> str:
    """The same in Markdown."""
    environment = _environment()
    environment.filters["cell"] = _markdown_text
    text = environment.get_template("page.md.j2").render(page=page)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(__name__), jinja2.PackageLoader("servelab.report")]),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else CONTROL.sub("", str(value)),
    )


def _markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, also in a table's cell."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))
