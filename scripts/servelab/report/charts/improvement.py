"""Baseline against optimized on every workload, in percent of the baseline, with the change's 95 % interval."""

from __future__ import annotations

import altair as alt
import pandas as pd

from servelab.core.errors import ConfigError
from servelab.core.yaml_file import figure, mark, percent
from servelab.report.charts import (
    CHARTS,
    INK,
    PLOT_WIDTH,
    SIDES,
    AnyChart,
    Chart,
    axis_title,
    finish,
    nothing_to_show,
    rows,
    side_colour,
    side_text,
)
from servelab.study.study import LAST_STAGES


def build(frame: pd.DataFrame) -> AnyChart:
    """Two bars per workload; `ConfigError` unless all rows have one metric on one basis."""
    frame = frame[frame["stage"].isin(LAST_STAGES)].reset_index(drop=True)
    if frame.empty:
        return nothing_to_show("Baseline and winner were not compared.")
    for column in ("metric", "basis"):
        if frame[column].nunique() > 1:
            values = ", ".join(sorted(frame[column].unique()))
            raise ConfigError(f"chart improvement shows one {column}, and the rows have {values}")
    metric, basis = str(frame["metric"].iloc[0]), str(frame["basis"].iloc[0])
    common = frame.assign(row=frame.index)
    baseline = common.assign(side="Baseline", percent=100.0, low=None, high=None)
    baseline["text"] = [
        figure(value) + mark(validity)
        for value, validity in zip(frame["baseline_value"], frame["baseline_validity"], strict=True)
    ]
    optimized = common.assign(
        side="Optimized",
        percent=100 + frame["change_percent"],
        low=100 + frame["change_ci95_low_percent"],
        high=100 + frame["change_ci95_high_percent"],
    )
    optimized["text"] = [
        f"{figure(row['value'])}{mark(row['validity'])} · "
        f"{percent(row['change_percent'])}{mark(row['validity'], row['baseline_validity'])}"
        for row in frame.to_dict("records")
    ]
    bars = pd.concat([baseline, optimized.astype({"low": float, "high": float})], ignore_index=True)
    bars = bars.astype({"low": float, "high": float})
    bars["name"] = [f"{row['workload']}: {row['side']} {row['text']}" for row in bars.to_dict("records")]
    bars = bars[["row", "side", "percent", "low", "high", "text", "name"]]

    extrapolated = bool(frame["extrapolated"].any())
    label = axis_title(metric, basis) + (" (extrapolated)" if extrapolated else "")
    title = f"{label}, in % of the baseline"
    y = rows([str(workload) for workload in frame["workload"]])
    offset = alt.YOffset("side:N", sort=list(SIDES))
    color = side_colour()
    base = alt.Chart(bars)
    layers = alt.layer(
        base.mark_bar(aria=True).encode(
            x=alt.X("percent:Q", title=title), y=y, yOffset=offset, color=color, description="name:N"
        ),
        alt.Chart(bars.dropna(subset=["low", "high"]))
        .mark_errorbar(color=INK, ticks=alt.TickConfig(color=INK, height=8))
        .encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, yOffset=offset),
        side_text(base, y, "text").encode(yOffset=offset),
    )
    validity = [*frame["validity"], *frame["baseline_validity"]]
    return finish(layers.properties(width=PLOT_WIDTH, height=alt.Step(19, **{"for": "offset"})), validity)


CHARTS.register(
    "improvement",
    Chart(
        name="improvement",
        reads="improvements",
        section="answer",
        caption="Baseline against optimized on every workload; line = 95 % interval of the change, over pairs of "
        "server starts or visits, or over logs.",
        columns=(
            "stage",
            "workload",
            "metric",
            "basis",
            "extrapolated",
            "baseline_value",
            "value",
            "baseline_validity",
            "validity",
            "change_percent",
            "change_ci95_low_percent",
            "change_ci95_high_percent",
        ),
        build=build,
    ),
)
