"""Pages of tables that look like the reports: the index over all studies, and the comparison of two studies."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from servelab.core.files import write_text
from servelab.report.cells import Table

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal colours and other control characters, which log lines may hold."""


def render_html(template: str, content: dict[str, Any], runtime: str = "", **functions: Callable[..., Markup]) -> str:
    """One self-contained file with its style and scripts inside; `functions` are those that the template calls.

    `runtime` is the script that draws the charts of a page, for one that has any. The page's policy (CSP) lets a
    browser use that style and these scripts only, by their hashes, and fetch nothing.
    """
    environment = _environment()
    own = {name: _source(environment, name) for name in ("report.css", "report.js", "charts.js")}
    scripts = [own["report.js"], *([runtime, own["charts.js"]] if runtime else [])]
    environment.globals["style"] = Markup(own["report.css"])  # noqa: S704 (our own file)
    environment.globals["style_hash"] = _policy_hash(own["report.css"])
    environment.globals["scripts"] = [Markup(script) for script in scripts]  # noqa: S704 (ours, or of our package)
    environment.globals["script_hashes"] = [_policy_hash(script) for script in scripts]
    environment.globals.update(functions)
    return environment.get_template(template).render(content)


def _source(environment: jinja2.Environment, file: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, file)[0]


def _policy_hash(text: str) -> Markup:
    """The text as a source of a content security policy."""
    return Markup("sha256-") + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render_markdown(template: str, content: dict[str, Any]) -> str:
    """The text without runs of empty lines."""
    text = _environment().get_template(template).render(content)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("servelab.report"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else CONTROL.sub("", str(value)),
    )
    environment.filters["cell"] = _markdown_text
    return environment


def _markdown_text(text: str) -> str:
    """Text that Markdown shows unchanged, also in a table's cell."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))


@dataclass(frozen=True)
class Figure:
    """A chart inside the page."""

    stem: str
    caption: str
    svg: Markup
    spec: Markup
    """What a browser draws it again from."""


@dataclass(frozen=True)
class Section:
    """A heading with a text, charts and a table; a table that is `folded` opens on a click."""

    heading: str
    table: Table
    text: str = ""
    kind: str = "facts"
    """Class in the style sheet: `facts` (aligned left) or `figures` (aligned right)."""
    folded: bool = False
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Page:
    """A title, a summary in one sentence, and sections. Links in its tables are relative to the page."""

    title: str
    lead: str
    sections: list[Section] = field(default_factory=list)
    remark: str = ""


def write_page(page: Page, html: Path, markdown: Path) -> None:
    """Writes the page as one self-contained HTML file, readable on a phone and without scripts, and as Markdown.

    The Markdown has no charts; their tables have the same figures.
    """
    runtime = ""
    if any(section.figures for section in page.sections):
        from servelab.report.charts import chart_runtime  # here, as most pages have no chart

        runtime = chart_runtime()
    write_text(html, render_html("page.html.j2", {"page": page}, runtime))
    write_text(markdown, render_markdown("page.md.j2", {"page": page}))
