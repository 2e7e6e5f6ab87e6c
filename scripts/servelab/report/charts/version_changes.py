"""Change between engine versions on the same configuration: percent with the 95 % interval, or the failure."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from servelab.core.yaml_file import mark, percent
from servelab.report.charts import (
    BLUE,
    CHARTS,
    GREY,
    INK,
    MUTED_INK,
    PLOT_WIDTH,
    VERMILLION,
    AnyChart,
    Chart,
    axis_title,
    finish,
    nothing_to_show,
    rows,
    side_text,
)

VERDICTS = {
    "Better": (BLUE, "triangle-up"),
    "No difference": (GREY, "circle"),
    "Worse": (VERMILLION, "triangle-down"),
}
"""Colour and shape of a point."""


def build(frame: pd.DataFrame) -> AnyChart:
    """One point per configuration and pair of versions; an unbounded interval is not drawn."""
    if frame.empty:
        return nothing_to_show("No configuration was measured at two versions of its engine.")
    frame = frame.reset_index(drop=True)
    records = frame.to_dict("records")
    frame["row"] = frame.index
    frame["text"] = [_text(record) for record in records]
    frame["found"] = frame["verdict"].str.capitalize()
    labels = [_label(frame, record) for record in records]
    frame["name"] = [
        f"{label}: {text}, {found}" for label, text, found in zip(labels, frame["text"], frame["verdict"], strict=True)
    ]
    y = rows(labels)
    compared = frame.dropna(subset=["change_percent"]).astype({"change_percent": float})
    ends = ["change_ci95_low_percent", "change_ci95_high_percent"]
    bounded = compared.astype(dict.fromkeys(ends, float)).replace([float("inf"), float("-inf")], None)

    title = f"Change of {axis_title(str(frame['metric'].iloc[0]), str(frame['basis'].iloc[0]))}, in %"
    zero = alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(color=MUTED_INK).encode(x=alt.X("zero:Q", title=title))
    colours, shapes = zip(*VERDICTS.values(), strict=True)
    colour = alt.Color("found:N", scale=alt.Scale(domain=list(VERDICTS), range=list(colours)))
    shape = alt.Shape("found:N", scale=alt.Scale(domain=list(VERDICTS), range=list(shapes)))
    points = (
        alt.Chart(compared)
        .mark_point(filled=True, size=90, opacity=1, aria=True)
        .encode(x=alt.X("change_percent:Q", title=title), y=y, color=colour, shape=shape, description="name:N")
    )
    intervals = (
        alt.Chart(bounded.dropna(subset=ends))
        .mark_errorbar(color=INK, ticks=alt.TickConfig(color=INK, height=8))
        .encode(x=alt.X("change_ci95_low_percent:Q", title=title), x2="change_ci95_high_percent:Q", y=y)
    )
    others = frame[frame["change_percent"].isna()]
    ink = alt.condition("datum.verdict == 'fixed failure'", alt.value(BLUE), alt.value(VERMILLION))
    failures = (
        alt.Chart(others)
        .mark_text(align="left", baseline="middle", fontSize=12)
        .encode(x=alt.value(4), y=y, text="text:N", color=ink)
    )
    layers = alt.layer(zero, intervals, points, failures, side_text(alt.Chart(compared), y, "text"))
    validity = [*frame["validity_before"], *frame["validity_after"]]
    return finish(layers.properties(width=PLOT_WIDTH, height=alt.Step(36)), validity)


def _label(frame: pd.DataFrame, record: dict[Any, Any]) -> str:
    """The candidate, with its workload and versions if the chart has several."""
    parts = [str(record["candidate"])]
    if frame["workload"].nunique() > 1:
        parts.append(str(record["workload"]))
    if len(frame[["engine", "version_before", "version_after"]].drop_duplicates()) > 1:
        parts.append(f"{record['version_before']} → {record['version_after']}")
    return " · ".join(parts)


def _text(record: dict[Any, Any]) -> str:
    if pd.isna(record["change_percent"]):
        return ("" if record["verdict"] == "fixed failure" else "× ") + str(record["verdict"])
    return percent(record["change_percent"]) + mark(record["validity_before"], record["validity_after"])


CHARTS.register(
    "version_changes",
    Chart(
        name="version_changes",
        reads="history",
        section="versions",
        caption="The newer version against the older on the same configuration; line = 95 % interval over rounds.",
        columns=(
            "candidate",
            "workload",
            "engine",
            "version_before",
            "version_after",
            "validity_before",
            "validity_after",
            "metric",
            "basis",
            "change_percent",
            "change_ci95_low_percent",
            "change_ci95_high_percent",
            "verdict",
        ),
        build=build,
    ),
)
