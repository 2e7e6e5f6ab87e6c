"""TTFT, TPOT, ITL and E2EL of baseline and winner on every workload."""

from __future__ import annotations

import altair as alt
import pandas as pd

from servelab.core.yaml_file import figure, mark, percent
from servelab.report.charts import (
    CHARTS,
    GREY,
    INK,
    PLOT_WIDTH,
    SIDES,
    AnyChart,
    Chart,
    finish,
    nothing_to_show,
    rows,
    side_colour,
    side_text,
)
from servelab.study.study import LAST_STAGES

LATENCIES = {
    "ttft_ms_mean": "TTFT: time to first token (ms)",
    "tpot_ms_mean": "TPOT: time per output token after the first (ms)",
    "itl_ms_mean": "ITL: gap between output events (ms)",
    "e2el_ms_mean": "E2EL: end-to-end latency (ms)",
}


def build(frame: pd.DataFrame) -> AnyChart:
    """One panel per latency, one row per workload: a line from the baseline's mean to the winner's, log scale.

    A latency that no run has is omitted. A mean of 0 has no place on a log scale and appears as text only.
    """
    frame = frame[frame["stage"].isin(LAST_STAGES) & (frame["outcome"] == "ok")]
    pairs = frame[frame["candidate"] == "baseline"].merge(
        frame[frame["candidate"] == "winner"], on="workload", suffixes=("_baseline", "_winner")
    )
    if pairs.empty:
        return nothing_to_show("Baseline and winner were not compared.")
    y = rows([str(workload) for workload in pairs["workload"]])
    panels = [
        _panel(pairs, column, title, y)
        for column, title in LATENCIES.items()
        if pairs[[f"{column}_baseline", f"{column}_winner"]].notna().any(axis=None)
    ]
    if not panels:
        return nothing_to_show("Neither baseline nor winner has a latency.")
    return finish(alt.vconcat(*panels, spacing=14), frame["validity"])


def _panel(pairs: pd.DataFrame, column: str, title: str, y: alt.Y) -> AnyChart:
    data = pd.DataFrame(
        {"row": pairs.index, "Baseline": pairs[f"{column}_baseline"], "Optimized": pairs[f"{column}_winner"]}
    )
    marks = [[mark(validity) for validity in pairs[f"validity_{side}"]] for side in ("baseline", "winner")]
    changes = 100 * (data["Optimized"] / data["Baseline"] - 1)
    data["text"] = [
        f"{figure(before)}{mark_before} → {figure(after)}{mark_after} · {percent(change)}"
        for before, mark_before, after, mark_after, change in zip(
            data["Baseline"], marks[0], data["Optimized"], marks[1], changes, strict=True
        )
    ]
    data[list(SIDES)] = data[list(SIDES)].where(data[list(SIDES)] > 0)
    points = data.melt(id_vars=["row"], value_vars=list(SIDES), var_name="side", value_name="ms")
    points["name"] = [
        f"{pairs['workload'][row['row']]}, {row['side']}: {title} {figure(row['ms'])}"
        for row in points.to_dict("records")
    ]
    scale = alt.Scale(type="log", nice=False, padding=8)
    x = alt.X("ms:Q", title=None, scale=scale, axis=alt.Axis(grid=False, labelOverlap="greedy", labelSeparation=8))
    color = side_colour()
    shape = alt.Shape("side:N", scale=alt.Scale(domain=list(SIDES), range=["circle", "diamond"]))
    layers = alt.layer(
        alt.Chart(data).mark_rule(color=GREY).encode(x=alt.X("Baseline:Q", title=None), x2="Optimized:Q", y=y),
        alt.Chart(points.dropna(subset=["ms"]))
        .mark_point(filled=True, size=80, opacity=1, aria=True)
        .encode(x=x, y=y, color=color, shape=shape, description="name:N"),
        side_text(alt.Chart(data), y, "text").encode(color=alt.value(INK)),
    )
    return layers.properties(width=PLOT_WIDTH, height=alt.Step(24), title=title)


CHARTS.register(
    "latency",
    Chart(
        name="latency",
        reads="comparison",
        section="latency",
        caption="Mean latencies of baseline and winner on every workload, in ms on log scales; lower is better.",
        columns=("stage", "candidate", "workload", "outcome", "validity", *LATENCIES),
        build=build,
    ),
)
