"""Charts: one file each, which registers its columns, its caption and the function that builds it.

Colours are from the Okabe-Ito palette, safe for the colour-blind, and no fact is shown by colour alone. Ink, grid and
background are fixed values, so that the report's style sheet can turn an inlined chart dark.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import altair as alt
import pandas as pd
import vl_convert
from markupsafe import Markup

from servelab.core.errors import Outage, ServelabError
from servelab.core.figure_text import MARKS_KEY, mark, metric_label
from servelab.core.files import write_text
from servelab.core.registry import Registry
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import per_basis

AnyChart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart

BACKGROUND = "#ffffff"
INK = "#24292f"
MUTED_INK = "#57606a"
GRID = "#d8dee4"
BLUE = "#0072b2"
SKY = "#56b4e9"
GREY = "#8c959f"
VERMILLION = "#d55e00"

PLOT_WIDTH = 200
"""Pixels of a plot without its labels: a whole chart stays near 500, so that it can be read on a phone."""

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""vl-convert includes the first one; with `Arial` alone, no text is drawn where it is not installed."""

PADDING = {"left": 20, "right": 20, "top": 6, "bottom": 6}
"""Space for browsers that have none of these fonts and use a wider one."""

VEGA_LITE = "_".join(alt.SCHEMA_VERSION.split(".")[:2])
"""The version that draws the charts, as vl-convert names it."""

EXTRAPOLATED = "*"
EXTRAPOLATED_KEY = "* extrapolated: one deployment × as many as fit on a node; nothing that large was run"

MOST_ROWS = 24
"""Most rows of a chart with one row per candidate: it draws the best, and the table beside it has all."""

Reads = Literal["proof", "search", "curves"]
Section = Literal["answer", "tried", "loads"]
Build = Callable[[pd.DataFrame], AnyChart | None]


@dataclass(frozen=True)
class Chart:
    """A chart.

    `reads` names its table: the pairs of the `proof`, the stage tables of the whole `search` with their decisions, or
    the `curves`. `section` is the report's section. `build` gets its rows, and gives None if they show nothing.
    """

    name: str
    reads: Reads
    section: Section
    caption: str
    build: Build


CHARTS: Registry[Chart] = Registry("chart")


def chart(name: str, reads: Reads, section: Section, caption: str) -> Callable[[Build], Chart]:
    """Registers the decorated function as the one that builds this chart."""
    return lambda build: CHARTS.register(name, Chart(name, reads, section, caption, build))


def rows(labels: Sequence[str]) -> alt.Y:
    """The y channel of a column `row` that numbers the labels from 0; long labels are wrapped, then shortened."""
    wrapped = [_label_lines(label) for label in labels]
    lookup = f"({json.dumps(wrapped)})[datum.value]"
    axis = alt.Axis(
        title=None,
        labelExpr=lookup,
        # A label's first line is on the row; of two lines the first goes above it, so that both are centred.
        labelBaseline={"condition": {"test": f"length({lookup}) > 1", "value": "line-bottom"}, "value": "middle"},
        labelLimit=240,
        labelOverlap=False,  # labels of two lines on neighbouring rows touch, and each is needed
        labelPadding=8,
        labelFontSize=13,
        labelColor=INK,
        ticks=False,
        domain=False,
        grid=False,
    )
    return alt.Y("row:O", axis=axis, scale=alt.Scale(domain=list(range(len(labels)))))


def axis_title(metric: str, per: str) -> str:
    """Metric, basis, and `lower is better` where that is so."""
    return metric_label(metric, per) + ("" if METRICS.get(metric).higher_is_better else ", lower is better")


def side_text(base: alt.Chart, y: alt.Y, column: str) -> alt.Chart:
    """Text in a column of its own, to the right of the plot."""
    text: alt.Chart = base.mark_text(align="left", baseline="middle", color=INK, fontSize=13).encode(
        x=alt.value(PLOT_WIDTH + 10), y=y, text=f"{column}:N"
    )
    return text


def is_extrapolated(row: Mapping[Any, Any]) -> bool:
    """Whether the objective in a stage table's row multiplies what was run."""
    return per_basis(row["objective_per"], int(row["accelerators"]), int(row["accelerators_per_node"]))[1]


def kind_channels(
    kinds: Mapping[str, tuple[str, str]], shown: Iterable[str], column: str = "kind"
) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of the names in a column, of these `shown`."""
    kinds = {name: kinds[name] for name in kinds if name in set(shown)}
    colours, shapes = ([kind[at] for kind in kinds.values()] for at in (0, 1))
    colour = alt.Color(f"{column}:N", scale=alt.Scale(domain=list(kinds), range=colours))
    return colour, alt.Shape(f"{column}:N", scale=alt.Scale(domain=list(kinds), range=shapes))


def finish(chart: AnyChart, validity: Iterable[str | None] = (), extrapolated: bool = False) -> AnyChart:
    """The style that all charts share, and below the chart a key of the marks that its figures have."""
    keys = [*([MARKS_KEY] if mark(*validity) else []), *([EXTRAPOLATED_KEY] if extrapolated else [])]
    if keys:
        lines = [line for key in keys for line in textwrap.wrap(key, 64)]
        chart = chart.properties(title=alt.Title(lines, orient="bottom", fontSize=12, fontWeight="normal"))
    configured: AnyChart = chart.configure(
        font=FONT,
        background=BACKGROUND,
        aria=False,  # it would describe every mark at length; the report has a table beside each chart
        padding=PADDING,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=MUTED_INK,
            tickCount=4,
            labelOverlap="greedy",
            labelSeparation=6,
            titleColor=MUTED_INK,
            titleFontWeight="normal",
            titleFontSize=12,
            labelFontSize=12,
            gridColor=GRID,
            domainColor=GRID,
            tickColor=GRID,
        ),
        legend=alt.LegendConfig(
            labelColor=INK, labelFontSize=12, orient="top", title=None, symbolSize=90, columnPadding=18
        ),
        title=alt.TitleConfig(anchor="start", color=INK, fontSize=13),
    )
    return configured


def _label_lines(label: str) -> list[str]:
    """At most two lines; of a longer label the beginning and the end, since either may distinguish it."""
    lines = [line.replace("/ ", "/") for line in textwrap.wrap(label.replace("/", "/ "), 29, break_on_hyphens=False)]
    return (lines or [""]) if len(lines) < 3 else [lines[0], f"…{label[-28:].lstrip()}"]


CHARTS.load(__name__)


@cache
def chart_runtime() -> str:
    """Vega, Vega-Lite and Vega-Embed, which puts `vegaEmbed` into the page's global names; about 0.9 MB.

    The same package always makes the same text. It takes seconds, so it is kept in the user's cache folder
    (`XDG_CACHE_HOME`, else `~/.cache`).
    """
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "servelab"
    file = place / f"vega-{VEGA_LITE}-of-vl-convert-{version('vl-convert-python')}.js"
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass
    # in a function of its own, so that its hundreds of names of one letter are not the page's
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    text = f'"use strict";\n(() => {{\n{bundle}\n}})();\n'
    with suppress(Outage):  # without it, it is made again for the next page
        write_text(file, text)
    return text


def inline_svg(text: str, stem: str, caption: str) -> Markup:
    """An SVG inside a page, whose style lets it fit; its ids get the chart's name `stem` as prefix.

    It is one picture with one name: the roles that Vega gives its parts, without names, are left out.
    """
    opening = re.search(r'<svg[^>]* width="[\d.]+" height="[\d.]+"[^>]*>', text)
    if opening is None:
        raise ServelabError(f"chart {stem}: not an SVG with a size; rule render_report draws it")
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
        raise ServelabError(f"{path}: {error.strerror}; rule render_report draws it") from None
