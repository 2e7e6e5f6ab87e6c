"""Throughput against latency of every candidate, and the Pareto front: those that no other beats in both."""

from __future__ import annotations

import altair as alt
import pandas as pd

from servelab.core.yaml_file import figure, mark
from servelab.metrics.objective import LATENCIES, THROUGHPUT, measured, on_front
from servelab.report.charts import (
    BLUE,
    CHARTS,
    GREY,
    INK,
    SKY,
    VERMILLION,
    AnyChart,
    Chart,
    finish,
    kind_channels,
)

KINDS = {
    "Baseline": (VERMILLION, "square"),
    "Winner": (BLUE, "diamond"),
    "On the Pareto front": (SKY, "circle"),
    "Other": (GREY, "cross"),
}
"""Colour and shape of a point."""
WIDTH, HEIGHT = 340, 170
MOST_ABOVE = 2.0
"""How many times as high as the best point a physical limit may be to be drawn."""


def build(frame: pd.DataFrame) -> AnyChart | None:
    """One panel per latency: mean latency to the right, total tokens/s per accelerator upwards; a line joins the front.

    An invalid run is on no front, nor is one with too
    many failed requests. None if one candidate beats all others in both.
    """
    runs = measured(frame)
    known = {column: runs[runs[column].notna()] for column in LATENCIES}
    shown = [(column, LATENCIES[column]) for column, rows in known.items() if on_front(rows, column).sum() > 1]
    if not shown:
        return None
    return finish(alt.vconcat(*(_panel(runs, *each) for each in shown), spacing=16), runs["validity"])


def _panel(runs: pd.DataFrame, column: str, title: str) -> AnyChart:
    runs = runs[runs[column].notna()]
    front = on_front(runs, column)
    kinds = ["On the Pareto front" if is_on else "Other" for is_on in front]
    kinds = [role or kind for role, kind in zip(runs["role"], kinds, strict=True)]
    points = runs.assign(kind=kinds, mark=[mark(validity) for validity in runs["validity"]], latency=runs[column])
    points["name"] = [
        f"{row['stage']}: {row['candidate']}: {title} {figure(row['latency'])}, "
        f"{figure(row[THROUGHPUT])} total tokens/s per accelerator"
        + ("" if row["kind"] == "Other" else f", {row['kind']}")
        for row in points.to_dict("records")
    ]
    points = points[["kind", "mark", "latency", THROUGHPUT, "name"]]
    x = alt.X("latency:Q", title=title, scale=alt.Scale(zero=False, padding=12))
    y = alt.Y(f"{THROUGHPUT}:Q", title=["Total tokens/s", "per accelerator"], scale=alt.Scale(zero=False, padding=12))
    colour, shape = kind_channels(KINDS, columns=2)
    line = runs[front].rename(columns={column: "latency"})[["latency", THROUGHPUT]]
    layers = alt.layer(
        alt.Chart(line).mark_line(color=SKY, strokeWidth=2).encode(x=x, y=y, order="latency:Q"),
        alt.Chart(points)
        .mark_point(filled=True, size=75, opacity=1, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description="name:N"),
        alt.Chart(points[points["mark"] != ""])
        .mark_text(dy=-11, color=INK, fontSize=13)
        .encode(x=x, y=y, text="mark:N"),
        *_limit(runs, y),
    )
    return layers.properties(width=WIDTH, height=HEIGHT)


def _limit(runs: pd.DataFrame, y: alt.Y) -> list[AnyChart]:
    """A line at the highest physical limit per accelerator, if it is near enough not to press the points together."""
    limit = (runs["limit_total_tokens_per_s"].astype(float) / runs["accelerators"]).max()
    if not limit <= MOST_ABOVE * runs[THROUGHPUT].max():  # also if there is none
        return []
    line = alt.Chart(pd.DataFrame({THROUGHPUT: [limit], "text": ["physical limit"]}))
    return [
        line.mark_rule(color=INK, strokeDash=[4, 3]).encode(y=y),
        line.mark_text(color=INK, align="left", dy=-6).encode(x=alt.value(4), y=y, text="text:N"),
    ]


CHARTS.register(
    "pareto",
    Chart(
        name="pareto",
        reads="search",
        section="loads",
        caption="Up and left is better; the line joins what nothing beats.",
        columns=(
            *("stage", "candidate", "run_id", "is_incumbent", "is_winner", "outcome", "validity", "too_many_failed"),
            *("accelerators", "total_tokens_per_s", "limit_total_tokens_per_s", *LATENCIES),
        ),
        build=build,
    ),
)
