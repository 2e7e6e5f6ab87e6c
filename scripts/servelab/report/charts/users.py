"""What a device gives in all against what each user gets, over the loads of a curve."""

from __future__ import annotations

import altair as alt
import pandas as pd

from servelab.core.number_text import mark
from servelab.report.charts import CHARTS, INK, AnyChart, Chart, finish, nothing_to_show
from servelab.report.charts.curves import HEIGHT, KINDS, WIDTH, kind_of, point_names

X, Y = "tokens_per_s_per_user", "tokens_per_s_per_accelerator"


def build(frame: pd.DataFrame) -> AnyChart:
    """A panel for each curve; a line joins the points of a configuration in the order of their loads.

    A user's tokens/s are 1000 / mean TPOT in ms. A point without figures or without a TPOT is not drawn.
    """
    rows = frame[(frame["outcome"] == "ok") & (frame["tpot_ms_mean"] > 0)].reset_index(drop=True)
    if rows.empty:
        return nothing_to_show("No point of a curve has a throughput and a TPOT.")
    rows[X] = 1000 / rows["tpot_ms_mean"]
    for column, name in ((Y, ""), ("low", "_ci95_low"), ("high", "_ci95_high")):
        rows[column] = rows[f"total_tokens_per_s{name}"].astype(float) / rows["accelerators"]
    rows["kind"] = kind_of(rows)
    rows["line"] = rows["stage"] + ": " + rows["candidate"]
    rows["name"] = point_names(rows, {X: "tokens/s per user", Y: "total tokens/s per accelerator"})
    marks = [mark(validity) for validity in rows["validity"]]
    loads = ["" if kind == "Other" else f"{level:g}" for kind, level in zip(rows["kind"], rows["level"], strict=True)]
    rows["label"] = [load + sign for load, sign in zip(loads, marks, strict=True)]
    panels = [_panel(each, str(curve)) for curve, each in rows.groupby("curve", sort=False)]
    return finish(alt.vconcat(*panels, spacing=16), rows["validity"])


def _panel(rows: pd.DataFrame, curve: str) -> AnyChart:
    rows = rows[[X, Y, "low", "high", "kind", "line", "level", "name", "label"]]
    x = alt.X(f"{X}:Q", title=f"{curve}: output tokens/s per user", scale=alt.Scale(zero=False, padding=12))
    y = alt.Y(f"{Y}:Q", title=["Total tokens/s", "per accelerator"], scale=alt.Scale(padding=10))
    colours, shapes = zip(*KINDS.values(), strict=True)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(colours)))
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(shapes)))
    layers = alt.layer(
        alt.Chart(rows).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, detail="line:N", order="level:Q"),
        alt.Chart(rows.dropna(subset=["low", "high"])).mark_rule(color=INK).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        alt.Chart(rows)
        .mark_point(filled=True, size=60, opacity=1, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description="name:N"),
        alt.Chart(rows[rows["label"] != ""]).mark_text(dy=-11, color=INK, fontSize=12).encode(x=x, y=y, text="label:N"),
    )
    return layers.properties(width=WIDTH, height=HEIGHT)


CHARTS.register(
    "users",
    Chart(
        name="users",
        reads="curves",
        section="search",
        caption="Throughput of a device against the speed that each user sees (1000 / mean TPOT), over the loads of a "
        "curve: up and right is better. A line is one configuration; numbers beside baseline and winner are the loads, "
        "a vertical line is a 95 % interval over starts or visits. Point at a mark to read its name and figures.",
        columns=(
            "curve",
            "load",
            "level",
            "stage",
            "candidate",
            "accelerators",
            "outcome",
            "validity",
            "total_tokens_per_s",
            "total_tokens_per_s_ci95_low",
            "total_tokens_per_s_ci95_high",
            "tpot_ms_mean",
        ),
        build=build,
    ),
)
