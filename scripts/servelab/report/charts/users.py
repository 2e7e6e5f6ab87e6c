"""Throughput of a device against the rate of each user, over the loads of a curve."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from servelab.core.yaml_file import mark
from servelab.metrics.objective import reachable
from servelab.report.charts import CHARTS, INK, SKY, AnyChart, Chart, finish, kind_channels
from servelab.report.charts.curves import HEIGHT, KINDS, WIDTH, kind_of, point_names, standing_out

X, Y = "tokens_per_s_per_user", "tokens_per_s_per_accelerator"


def build(frame: pd.DataFrame) -> AnyChart | None:
    """A panel for each curve; a line joins the points of a configuration in the order of their loads.

    A user's tokens/s are 1000 / mean TPOT in ms. A point without figures or without a TPOT is not drawn.
    """
    rows = frame[(frame["outcome"] == "ok") & (frame["tpot_ms_mean"] > 0)].reset_index(drop=True)
    if rows.empty:
        return None
    rows[X] = 1000 / rows["tpot_ms_mean"]
    for column, name in ((Y, ""), ("low", "_ci95_low"), ("high", "_ci95_high")):
        rows[column] = rows[f"total_tokens_per_s{name}"].astype(float) / rows["accelerators"]
    rows["kind"] = kind_of(rows)
    rows["line"] = rows["stage"] + ": " + rows["candidate"]
    rows["name"] = point_names(rows, {X: "tokens/s per user", Y: "total tokens/s per accelerator"})
    marks = [mark(validity) for validity in rows["validity"]]
    loads = ["" if kind == "Other" else f"{level:g}" for kind, level in zip(rows["kind"], rows["level"], strict=True)]
    rows["label"] = [load + sign for load, sign in zip(loads, marks, strict=True)]
    panels = [
        _panel(each.reset_index(drop=True), str(curve), f"points{place}")
        for place, (curve, each) in enumerate(rows.groupby("curve", sort=False))
    ]
    return finish(alt.vconcat(*panels, spacing=16), rows["validity"])


def _panel(rows: pd.DataFrame, curve: str, name: str) -> AnyChart:
    valid = rows[rows["validity"] != "invalid"]
    front = reachable(valid, X, Y)
    best = valid[X].map(front.set_index(X)["best"]).reindex(rows.index)
    rows = rows.assign(name=rows["name"] + np.where(rows[Y] == best, ", on the front", ""))
    rows = rows[[X, Y, "low", "high", "kind", "line", "level", "name", "label"]]
    x = alt.X(f"{X}:Q", title=f"{curve}: output tokens/s per user", scale=alt.Scale(zero=False, padding=12))
    y = alt.Y(f"{Y}:Q", title=["Total tokens/s", "per accelerator"], scale=alt.Scale(padding=10))
    colour, shape = kind_channels(KINDS)
    pointed, opacity = standing_out(name)
    steps = alt.Chart(front).encode(x=x)
    layers = alt.layer(
        steps.mark_area(color=SKY, opacity=0.3, interpolate="step-before").encode(y=alt.Y("low:Q"), y2="high:Q"),
        steps.mark_line(color=SKY, strokeWidth=3, interpolate="step-before").encode(y=alt.Y("best:Q")),
        alt.Chart(rows)
        .mark_line(strokeWidth=1.5)
        .encode(x=x, y=y, color=colour, detail="line:N", order="level:Q", opacity=opacity),
        alt.Chart(rows.dropna(subset=["low", "high"])).mark_rule(color=INK).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        alt.Chart(rows, name=name)
        .mark_point(filled=True, size=60, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description="name:N", opacity=opacity)
        .add_params(pointed),
        *(
            alt.Chart(rows[(rows["label"] != "") & ((rows["kind"] == "Baseline") == (dy > 0))])
            .mark_text(dy=dy, color=INK, fontSize=12)
            .encode(x=x, y=y, text="label:N")
            for dy in (-11, 14)  # those of the baseline, which is mostly the lower line, below it
        ),
    )
    return layers.properties(width=WIDTH, height=HEIGHT)


CHARTS.register(
    "users",
    Chart(
        name="users",
        reads="curves",
        section="loads",
        caption="Each user's speed against the device's, load by load: up and right is better.",
        columns=(
            *("curve", "load", "level", "stage", "candidate", "accelerators", "outcome", "validity"),
            *("total_tokens_per_s", "total_tokens_per_s_ci95_low", "total_tokens_per_s_ci95_high", "tpot_ms_mean"),
        ),
        build=build,
    ),
)
