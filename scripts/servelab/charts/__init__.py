"""Charts: one file each, which registers the columns it needs, its caption and a function that builds it.

Colours are of the Okabe-Ito palette, safe for the colour-blind, and no fact is told by colour alone. Ink, grid and
background are fixed values, so that the report can turn an inlined chart dark by naming them in its style sheet.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd

from servelab.figures import MARKS_KEY, mark, metric_label
from servelab.metrics import METRICS
from servelab.objective import per_basis
from servelab.registry import Registry

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
"""vl-convert carries the first one with it; a lone `Arial` would draw no text where it is not installed."""

PADDING = {"left": 20, "right": 20, "top": 6, "bottom": 6}
"""Room at the sides for browsers that have none of these fonts and take a wider one."""

EXTRAPOLATED = "*"
EXTRAPOLATED_KEY = "* extrapolated: one deployment × as many as fit a node; nothing that large was run"

SIDES = {"Baseline": GREY, "Optimized": BLUE}
SIDE_OF = {"baseline": "Baseline", "winner": "Optimized"}
"""Candidate of the comparison → its name in charts."""

MOST_ROWS = 24
"""Rows of a chart that has a row a candidate: the best are drawn, the table beside it has all."""

MOST_POINTS = 300
"""Points of a cloud that are drawn; of more, some are left out evenly."""

Reads = Literal[
    "improvements", "comparison", "search", "stage", "history", "timeline", "distributions", "device_series"
]
Section = Literal["answer", "search", "latency", "time", "stage", "versions"]


@dataclass(frozen=True)
class Chart:
    """A chart.

    `reads` names its tables: the study's `improvements` (the rows of its objective), the `comparison`'s table, the
    tables of all stages of the `search` with their decisions, those of one `stage`, or the `history` of versions; or of
    the comparison's runs the `timeline`, the `distributions` of their latencies and the `device_series` of their
    telemetry, each with `candidate` and `validity`. `section` says where the report shows it, one of a `stage` in each
    stage's own. `build` gets the rows of all its tables, in order, with at least `columns`.
    """

    name: str
    reads: Reads
    section: Section
    caption: str
    columns: tuple[str, ...]
    build: Callable[[pd.DataFrame], AnyChart]

    def stem(self, stage: str | None = None) -> str:
        """Name of its files without suffix: `<chart>`, or `<chart>-<stage>` for a stage's."""
        return f"{self.name}-{stage}" if stage else self.name


CHARTS: Registry[Chart] = Registry("chart")


def rows(labels: Sequence[str]) -> alt.Y:
    """The y channel of a column `row` that numbers the labels from 0; long labels are wrapped, then cut inside."""
    wrapped = [_label_lines(label) for label in labels]
    lookup = f"({json.dumps(wrapped)})[datum.value]"
    axis = alt.Axis(
        title=None,
        labelExpr=lookup,
        # A label's first line sits on the row; two lines are centred by hanging the first above it.
        labelBaseline={"condition": {"test": f"length({lookup}) > 1", "value": "line-bottom"}, "value": "middle"},
        labelLimit=190,
        labelPadding=8,
        labelFontSize=13,
        labelColor=INK,
        ticks=False,
        domain=False,
        grid=False,
    )
    return alt.Y("row:O", axis=axis, scale=alt.Scale(domain=list(range(len(labels)))))


def axis_title(metric: str, per: str) -> str:
    """Metric, basis, and the direction where lower is better."""
    return metric_label(metric, per) + ("" if METRICS.get(metric).higher_is_better else ", lower is better")


def side_text(base: alt.Chart, y: alt.Y, column: str) -> alt.Chart:
    """Text in a column of its own, to the right of the plot."""
    text: alt.Chart = base.mark_text(align="left", baseline="middle", color=INK, fontSize=13).encode(
        x=alt.value(PLOT_WIDTH + 10), y=y, text=f"{column}:N"
    )
    return text


def nothing_to_show(reason: str) -> AnyChart:
    """Stands in for a chart without data, so that its files exist and say why they are empty."""
    return finish(
        alt.Chart(pd.DataFrame({"text": [reason]}))
        .mark_text(align="left", color=MUTED_INK, fontSize=12)
        .encode(x=alt.value(0), text="text:N")
    )


def spread(frame: pd.DataFrame, column: str, most: int) -> pd.DataFrame:
    """At most so many rows, evenly taken in the order of a column, its smallest and largest among them."""
    if len(frame) <= most:
        return frame
    places = np.unique(np.linspace(0, len(frame) - 1, most).astype(int))
    return frame.sort_values(column, kind="stable").iloc[places]


def is_extrapolated(row: Mapping[Any, Any]) -> bool:
    """Whether a stage table's row has an objective that multiplies what was run."""
    return per_basis(row["objective_per"], int(row["accelerators"]), int(row["accelerators_per_node"]))[1]


def side_colour() -> alt.Color:
    """The colour of a column `side`, which has names of `SIDES`."""
    return alt.Color("side:N", scale=alt.Scale(domain=list(SIDES), range=list(SIDES.values())))


def finish(chart: AnyChart, validity: Iterable[str | None] = (), extrapolated: bool = False) -> AnyChart:
    """The looks that all charts share; below it a key of the marks, where any of its figures has one."""
    keys = [*([MARKS_KEY] if mark(*validity) else []), *([EXTRAPOLATED_KEY] if extrapolated else [])]
    if keys:
        chart = chart.properties(title=alt.Title(_lines(keys), orient="bottom", fontSize=12, fontWeight="normal"))
    configured: AnyChart = chart.configure(
        font=FONT,
        background=BACKGROUND,
        aria=False,  # names every mark in long words; the report has a table beside each chart
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
    """At most two lines; of a longer label its begin and its end, for either may tell it from others."""
    lines = [line.replace("/ ", "/") for line in textwrap.wrap(label.replace("/", "/ "), 26, break_on_hyphens=False)]
    return (lines or [""]) if len(lines) < 3 else [lines[0], f"…{label[-25:].lstrip()}"]


def _lines(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, 64)]


CHARTS.load(__name__)
