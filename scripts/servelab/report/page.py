"""Pages of tables that look like the reports: the index over all studies, and the comparison of two studies."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from servelab.core.files import write_text
from servelab.report.cells import Table
from servelab.report.templating import render_html, render_markdown


@dataclass(frozen=True)
class Section:
    """A heading with a text and a table; one that is `folded` opens on a click."""

    heading: str
    table: Table
    text: str = ""
    kind: str = "facts"
    """Class in the style sheet: `facts` (aligned left) or `figures` (aligned right)."""
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A title, a summary in one sentence, and sections. Links in its tables are relative to the page."""

    title: str
    lead: str
    sections: list[Section] = field(default_factory=list)
    remark: str = ""


def write_page(page: Page, html: Path, markdown: Path) -> None:
    """Writes the page as one self-contained HTML file, readable on a phone and without scripts, and as Markdown."""
    write_text(html, render_html("page.html.j2", {"page": page}))
    write_text(markdown, render_markdown("page.md.j2", {"page": page}))
