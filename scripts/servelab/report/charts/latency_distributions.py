"""Distributions of TTFT, TPOT and ITL over requests: percentile curves of baseline and winner on every workload."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from servelab.core.yaml_file import figure
from servelab.report.charts import (
    CHARTS,
    SIDE_OF,
    AnyChart,
    Chart,
    finish,
    side_colour,
)

LATENCIES = {"ttft_ms": "TTFT (ms)", "tpot_ms": "TPOT (ms)", "itl_ms": "ITL (ms)"}
NAMED = (50, 90, 99)
"""Percentiles that are points with a name."""
WIDTH, HEIGHT = 104, 112


def build(frame: pd.DataFrame) -> AnyChart | None:
    """One row per workload, one panel per latency: share of observations up to a latency, log scale; left is better.

    A latency of 0 has no place on a log scale, so its part of the curve is omitted.
    """
    frame = frame[frame["metric"].isin(LATENCIES) & (frame["value_ms"] > 0)]
    if frame.empty:
        return None
    frame = frame.assign(side=frame["candidate"].map(SIDE_OF))
    rows = [
        alt.hconcat(
            *(_panel(of_workload[of_workload["metric"] == metric], metric) for metric in LATENCIES),
            spacing=8,
            title=alt.Title(str(workload), offset=6),
        )
        for workload, of_workload in frame.groupby("workload", sort=False)
    ]
    return finish(alt.vconcat(*rows, spacing=18), frame["validity"])


def _panel(frame: pd.DataFrame, metric: str) -> AnyChart:
    first = metric == next(iter(LATENCIES))
    ticks: dict[str, Any] = {"values": [0, 50, 90, 100], "grid": True, "labels": first, "ticks": first}
    y = alt.Y(
        "percentile:Q",
        title="% of observations" if first else None,
        scale=alt.Scale(domain=[0, 100]),
        axis=alt.Axis(**ticks),
    )
    scale = alt.Scale(type="log", nice=False, padding=4)
    x = alt.X("value_ms:Q", title=LATENCIES[metric], scale=scale, axis=alt.Axis(grid=False, tickCount=3, format=",~r"))
    lines = alt.Chart(frame[["side", "percentile", "value_ms"]])
    named = frame[frame["percentile"].isin(NAMED)]
    named = named.assign(
        name=[
            f"{row['side']}: {row['percentile']:g} % of {LATENCIES[metric].removesuffix(' (ms)')} are at most "
            f"{figure(row['value_ms'])} ms"
            for row in named.to_dict("records")
        ]
    )
    chart = alt.layer(
        lines.mark_line(strokeWidth=2, clip=True).encode(x=x, y=y, color=side_colour(), order="percentile:Q"),
        alt.Chart(named[["side", "percentile", "value_ms", "name"]])
        .mark_point(filled=True, size=24, opacity=1, aria=True)
        .encode(x=x, y=y, color=side_colour(), description="name:N"),
    )
    return chart.properties(width=WIDTH, height=HEIGHT)


CHARTS.register(
    "latency_distributions",
    Chart(
        name="latency_distributions",
        reads="distributions",
        section="latency",
        caption="Share of requests, or of gaps between events (ITL), up to a latency; further left is better.",
        columns=("candidate", "validity", "workload", "metric", "percentile", "value_ms"),
        build=build,
    ),
)
