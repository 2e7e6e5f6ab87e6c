"""All that was tried, the best first: the objective of each candidate with its interval, or why it has none."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from servelab.core.figure_text import figure, mark
from servelab.metrics.definitions import METRICS
from servelab.report.charts import (
    BLUE,
    EXTRAPOLATED,
    GREY,
    INK,
    MOST_ROWS,
    PLOT_WIDTH,
    SKY,
    VERMILLION,
    AnyChart,
    axis_title,
    chart,
    finish,
    is_extrapolated,
    kind_channels,
    rows,
    side_text,
)

ROLES = {"Baseline": (GREY, "square"), "Kept after its stage": (BLUE, "diamond"), "Other": (SKY, "circle")}


@chart("tried", "search", "tried", "The best first; lines are 95 % intervals.")
def _tried(frame: pd.DataFrame) -> AnyChart | None:
    """A row for each candidate and workload, once; candidates without a valid figure are the last.

    Of more than `MOST_ROWS` the best are drawn, and the axis title says so. None if nothing was tried.
    """
    frame = frame[frame["outcome"].isin(("ok", "failed"))]
    against = frame["stage"].map(frame[frame["is_incumbent"]].drop_duplicates("stage").set_index("stage")["candidate"])
    frame = frame.assign(is_against_best=against != against.iloc[0])
    is_first = ~frame["is_incumbent"] | (frame["stage"] == frame["stage"].head(1).squeeze())
    frame = frame[is_first].drop_duplicates(["candidate", "workload", "run_id"])
    if len(frame) < 2:
        return None
    metric, per = str(frame["objective"].iloc[0]), str(frame["objective_per"].iloc[0])
    ascending = not METRICS.get(metric).higher_is_better
    frame = frame.assign(has_point=(frame["outcome"] == "ok") & (frame["validity"] != "invalid"))
    ordered = frame.sort_values(["has_point", "objective_value"], ascending=[False, ascending], kind="stable")
    shown = ordered.head(MOST_ROWS).reset_index(drop=True)
    shown["objective_ci95_low"] = shown["objective_ci95_low"].clip(lower=0)  # of two starts it may be below
    records = shown.to_dict("records")
    several = shown["workload"].nunique() > 1
    labels = [f"{each['candidate']} · {each['workload']}" if several else each["candidate"] for each in records]
    shown["row"] = shown.index
    kept = ["Kept after its stage" if each["is_winner"] else "Other" for each in records]
    shown["role"] = ["Baseline" if each["is_incumbent"] else role for each, role in zip(records, kept, strict=True)]
    shown["text"] = [_text(each) for each in records]
    shown["name"] = [f"{each['stage_title']}: {of}: {_text(each)}" for of, each in zip(labels, records, strict=True)]
    title = axis_title(metric, per) + (f"; the best of {len(ordered):,}" if len(shown) < len(ordered) else "")
    x, y = alt.X("objective_value:Q", title=title, scale=alt.Scale(zero=False, padding=12)), rows(labels)
    colour, shape = kind_channels(ROLES, shown["role"], "role")
    ends = ["objective_ci95_low", "objective_ci95_high"]
    drawn = shown[["row", "role", "text", "name", "has_point", "objective_value", *ends]]
    ok = drawn[drawn["has_point"]]
    layers = alt.layer(
        alt.Chart(ok.dropna(subset=ends))
        .mark_errorbar(color=INK, ticks=alt.TickConfig(color=INK, height=8))
        .encode(x=alt.X(f"{ends[0]}:Q", title=title), x2=ends[1], y=y),
        alt.Chart(ok)
        .mark_point(filled=True, size=90, opacity=1, aria=True)
        .encode(x=x, y=y, color=colour, shape=shape, description="name:N"),
        side_text(alt.Chart(ok), y, "text"),
        alt.Chart(drawn[~drawn["has_point"]])
        .mark_text(align="left", baseline="middle", color=VERMILLION, fontSize=12)
        .encode(x=alt.value(4), y=y, text="text:N"),
    )
    extrapolated = any(is_extrapolated(each) for each in records)
    return finish(layers.properties(width=PLOT_WIDTH, height=alt.Step(30)), shown["validity"], extrapolated)


def _text(record: dict[Any, Any]) -> str:
    if record["outcome"] != "ok":
        return f"× {record['outcome']}: {str(record['reason']).replace('_', ' ')}"
    extrapolated = EXTRAPOLATED if is_extrapolated(record) else ""
    verdict = "" if record["is_incumbent"] or pd.isna(record["verdict"]) else f" · {record['verdict']}"
    if record["is_against_best"]:
        verdict += {"worse": " than the best", "within noise": " of the best"}.get(record["verdict"], "")
    return f"{figure(record['objective_value'])}{extrapolated}{mark(record['validity'])}{verdict}"
