"""A chart inside a page: its drawing, and the description from which a browser draws it again."""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup

from servelab.core.errors import ServelabError


def inline_svg(text: str, stem: str, caption: str) -> Markup:
    """An SVG inside a page, whose style lets it fit; its ids get the chart's name `stem` as prefix.

    It is one picture with one name: the roles that Vega gives its parts, without names, are left out.
    """
    opening = re.search(r'<svg[^>]* width="[\d.]+" height="[\d.]+"[^>]*>', text)
    if opening is None:
        raise ServelabError(f"chart {stem}: not an SVG with a size; draw it with scripts/plot_charts.py")
    looks = Markup('<svg role="img" aria-label="{}"').format(caption)
    body = re.sub(r' (?:role|aria-[a-z]+)="[^"]*"', "", text[opening.end() :])
    body = re.sub(r'(\bid="|url\(#)', rf"\g<1>{stem}-", body)
    start = opening.group().replace("<svg", looks, 1)
    return Markup(start + body)  # noqa: S704 (drawn by vl-convert, which escapes its texts)


def inline_spec(text: str) -> Markup:
    """A chart's Vega-Lite description as JSON that no page reads as markup."""
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 (no "<" is left)


def read_chart(path: Path) -> str:
    """A file of a chart; `ServelabError` names one that is missing."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ServelabError(f"{path}: {error.strerror}; draw it with scripts/plot_charts.py") from None
