"""The answers of studies on one model and hardware over time: what the recommended configuration reached."""

from __future__ import annotations

import altair as alt
import pandas as pd

from servelab.core.yaml_file import estimate
from servelab.report.charts import (
    BLUE,
    GREY,
    INK,
    MOST_ROWS,
    PLOT_WIDTH,
    SKY,
    VERMILLION,
    AnyChart,
    axis_title,
    finish,
    rows,
    side_text,
)

COLOURS = (BLUE, VERMILLION, "#009e73", "#cc79a7", "#e69f00", SKY)
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
"""One of each for a study; beyond six they repeat."""

CAPTION = (
    "what each answer's configuration reached on its study's deciding workload, oldest first; line = 95 % interval. "
    "A grey line joins the answers of one study. Point at a mark to read its name and figures."
)


def build(answers: pd.DataFrame) -> AnyChart:
    """A row for each of the newest answers, oldest first; a line joins those of one study.

    `answers` has rows of schemas.ANSWERS of one metric and basis, sorted by `measured_at`.
    """
    frame = answers.tail(MOST_ROWS).reset_index(drop=True)
    frame["row"] = frame.index
    figures = zip(frame["value"], frame["ci95_low"], frame["ci95_high"], strict=True)
    frame["text"] = [estimate(*each) for each in figures]
    records = frame.to_dict("records")
    labels = [f"{str(each['measured_at'])[:10]} {each['engine']} {each['engine_version']}" for each in records]
    frame["name"] = [
        f"{label}, {each['study']}, {each['candidate']}: {each['text']}"
        for label, each in zip(labels, records, strict=True)
    ]
    metric, basis = frame[["metric", "basis"]].iloc[0]
    title = axis_title(metric, basis)
    x = alt.X("value:Q", title=title, scale=alt.Scale(zero=False, padding=12))
    y = rows(labels)
    studies = list(dict.fromkeys(frame["study"]))
    colours, shapes = ([each[place % len(each)] for place in range(len(studies))] for each in (COLOURS, SHAPES))
    colour = alt.Color("study:N", scale=alt.Scale(domain=studies, range=colours))
    shape = alt.Shape("study:N", scale=alt.Scale(domain=studies, range=shapes))
    base = alt.Chart(frame[["row", "text", "name", "study", "value", "ci95_low", "ci95_high"]])
    bounded = base.transform_filter("datum.ci95_low !== null && datum.ci95_high !== null")
    layers = alt.layer(
        base.mark_line(color=GREY, strokeWidth=1).encode(x=x, y=y, detail="study:N", order="row:O"),
        bounded.mark_rule(color=INK).encode(x=alt.X("ci95_low:Q", title=title), x2="ci95_high:Q", y=y),
        base.mark_point(filled=True, size=90, opacity=1, aria=True).encode(
            x=x, y=y, color=colour, shape=shape, description="name:N"
        ),
        side_text(base, y, "text"),
    )
    return finish(layers.properties(width=PLOT_WIDTH, height=alt.Step(36)))
