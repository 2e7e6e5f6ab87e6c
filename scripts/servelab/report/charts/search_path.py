"""The objective from stage to stage: the winner of each, and the other candidates."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from servelab.core.yaml_file import figure, mark
from servelab.report.charts import (
    BLUE,
    CHARTS,
    EXTRAPOLATED,
    GREY,
    INK,
    MOST_POINTS,
    PLOT_WIDTH,
    AnyChart,
    Chart,
    axis_title,
    finish,
    is_extrapolated,
    nothing_to_show,
    rows,
    side_text,
    spread,
)
from servelab.study.study import AFTER_SEARCH


def build(frame: pd.DataFrame) -> AnyChart:
    """One row for the baseline, then one per stage that tried something: its winner on the line, the others beside."""
    tried = set(frame.loc[~frame["is_incumbent"], "stage"]) - set(AFTER_SEARCH)
    frame = frame[frame["stage"].isin(tried) & (frame["outcome"] == "ok")]
    stages = list(dict.fromkeys(frame["stage"]))
    if not stages:
        return nothing_to_show("No stage was measured.")
    start = frame[(frame["stage"] == stages[0]) & frame["is_incumbent"]].head(1).assign(row=0)
    winners = frame[frame["is_winner"]].drop_duplicates("stage")
    winners = winners.assign(row=[stages.index(stage) + 1 for stage in winners["stage"]])
    path = pd.concat([start, winners], ignore_index=True)
    path["text"] = [_figure(row) for row in path.to_dict("records")]
    others = frame.assign(row=[stages.index(stage) + 1 for stage in frame["stage"]])
    others = spread(others[~others["is_winner"]], "objective_value", MOST_POINTS)
    titles = [str(frame.loc[frame["stage"] == stage, "stage_title"].iloc[0]) for stage in stages]

    y = rows(["Baseline", *titles])
    title = axis_title(str(frame["objective"].iloc[0]), str(frame["objective_per"].iloc[0]))
    x = alt.X("objective_value:Q", title=title, scale=alt.Scale(zero=False, padding=10))
    marks = {"Kept after the stage": (BLUE, "circle"), "Also measured": (GREY, "cross")}
    color = alt.Color("kind:N", scale=alt.Scale(domain=list(marks), range=[mark[0] for mark in marks.values()]))
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=list(marks), range=[mark[1] for mark in marks.values()]))
    points = pd.concat(
        [others.assign(kind="Also measured"), path.assign(kind="Kept after the stage")], ignore_index=True
    )
    points["mark"] = [mark(validity) for validity in points["validity"]]
    points["name"] = [
        f"{'Baseline' if row['row'] == 0 else row['stage_title']}: {row['candidate']}: {title} {_figure(row)}"
        for row in points.to_dict("records")
    ]
    layers = alt.layer(
        alt.Chart(path).mark_line(color=BLUE, strokeWidth=2).encode(x=x, y=y, order="row:Q"),
        alt.Chart(path.dropna(subset=["objective_ci95_low", "objective_ci95_high"]))
        .mark_errorbar(color=INK, ticks=alt.TickConfig(color=INK, height=8))
        .encode(x=alt.X("objective_ci95_low:Q", title=title), x2="objective_ci95_high:Q", y=y),
        alt.Chart(points)
        .mark_point(filled=True, size=70, opacity=1, aria=True)
        .encode(x=x, y=y, color=color, shape=shape, description="name:N"),
        alt.Chart(points[points["mark"] != ""])
        .mark_text(dy=-11, color=INK, fontSize=13)
        .encode(x=x, y=y, text="mark:N"),
        side_text(alt.Chart(path), y, "text"),
    )
    extrapolated = any(is_extrapolated(row) for row in path.to_dict("records"))
    return finish(layers.properties(width=PLOT_WIDTH, height=alt.Step(40)), points["validity"], extrapolated)


def _figure(row: dict[Any, Any]) -> str:
    extrapolated = EXTRAPOLATED if is_extrapolated(row) else ""
    return figure(row["objective_value"]) + extrapolated + mark(row["validity"])


CHARTS.register(
    "search_path",
    Chart(
        name="search_path",
        reads="search",
        section="search",
        caption="What chose: the objective of the configuration kept after each stage, with its 95 % interval over "
        "server starts, visits or logs if it had several; crosses are the other measured candidates.",
        columns=(
            "stage",
            "stage_title",
            "candidate",
            "is_incumbent",
            "is_winner",
            "outcome",
            "validity",
            "objective",
            "objective_per",
            "objective_value",
            "objective_ci95_low",
            "objective_ci95_high",
            "accelerators",
            "accelerators_per_node",
        ),
        build=build,
    ),
)
