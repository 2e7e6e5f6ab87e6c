"""Pages of tables that look like the reports: the index over all studies, and the comparison of two studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from servelab.core.files import write_text
from servelab.report.cells import Table
from servelab.report.templating import render_html, render_markdown


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
        from servelab.report.charts.vega_runtime import chart_runtime  # here, as most pages have no chart

        runtime = chart_runtime()
    write_text(html, render_html("page.html.j2", {"page": page}, runtime))
    write_text(markdown, render_markdown("page.md.j2", {"page": page}))
