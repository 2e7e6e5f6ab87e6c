"""The answers of all studies over time, by model and hardware: what an upgrade of an engine or a driver changed."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.yaml_file import estimate, metric_label
from servelab.metrics.definitions import METRICS
from servelab.metrics.tables.comparison_schemas import ANSWERS
from servelab.metrics.tables.io import read_table
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
from servelab.report.page import Cell, PageChart, Section, Table, change_cell, value_or_none
from servelab.study.project import StudySummary

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


ANSWER_COLUMNS = ["Model", "Hardware", "Measured", "Study", "Versions", "Winner", "Gain on its baseline"]
TEXT = (
    "Every kept answer of the live studies, by model and hardware, oldest first. Below the versions is what changed "
    "since the answer before of the same model and hardware. Answers of other days also differ by the machine's drift; "
    "a study's report compares the same configurations under two versions."
)

Row = dict[Any, Any]


def answers_over_time(results: Path) -> Section | None:
    """The answers in the studies' `answers.parquet` below `results`, if any; links are relative to it.

    A row for each answer, and a chart where a model, hardware and metric have two.
    """
    answers: list[tuple[str, str, Row]] = []
    for folder in sorted((results / "studies").glob("*")):
        if (folder / "answers.parquet").exists() and (folder / "study.json").exists():
            with suppress(ServelabError):  # the list of studies names a file that cannot be read
                study = StudySummary.read(folder / "study.json")
                kept = read_table(folder / "answers.parquet", ANSWERS)
                answers += [
                    (str(study.model["id"]), study.hardware.accelerator, row) for row in kept.to_dict("records")
                ]
    answers.sort(key=lambda answer: (answer[0], answer[1], str(answer[2]["measured_at"])))
    before: dict[tuple[str, str], Row] = {}
    rows = []
    for model, hardware, row in answers:
        rows.append([Cell(model), Cell(hardware), *_cells(results, row, before.get((model, hardware)))])
        before[model, hardware] = row
    if not rows:
        return None
    alike = defaultdict(list)
    for model, hardware, row in answers:
        alike[model, hardware, row["metric"], row["basis"]].append(row)
    figures = [
        _figure(f"answers-{place}", f"{model}, {hardware}", each)
        for place, ((model, hardware, *_), each) in enumerate(alike.items(), start=1)
        if len(each) > 1
    ]
    return Section("Answers over time", Table(ANSWER_COLUMNS, rows), TEXT, "facts board", figures=figures)


def _figure(stem: str, of: str, answers: list[Row]) -> PageChart:
    import pandas as pd  # here: most index pages have no chart, and drawing takes a second

    from servelab.report.charts import inline_spec, inline_svg
    from servelab.report.charts.write import drawing

    caption = f"{of}: {CAPTION}"
    spec, svg = drawing(build(pd.DataFrame(answers)))
    return PageChart(stem, caption, inline_svg(svg, stem, caption), inline_spec(json.dumps(spec)))


def _cells(results: Path, row: Row, before: Row | None) -> list[Cell]:
    report = f"studies/{row['study']}/report.html"
    label = metric_label(str(row["metric"]), str(row["basis"]))
    return [
        Cell(str(row["measured_at"])[:10], note=value_or_none(row["measured_on"]) or ""),
        Cell(str(row["study"]), note=str(row["candidate"]), link=report if (results / report).exists() else ""),
        Cell(str(row["versions"]), note=_changed(row, before) if before else ""),
        Cell(estimate(row["value"], row["ci95_low"], row["ci95_high"]), note=label),
        change_cell(dict(row), None, bool(METRICS.get(str(row["metric"])).higher_is_better)),
    ]


def _changed(row: Row, before: Row) -> str:
    """Differences in engines and machine between two answers, in words."""
    found = []
    for name in ("versions", "measured_on"):
        old, new = (_parts(value_or_none(each[name]) or "") for each in (before, row))
        found += [f"{part} {old[part]} → {new[part]}" for part in new if part in old and old[part] != new[part]]
    return "; ".join(found)


def _parts(text: str) -> dict[str, str]:
    """`vllm 0.32.0, driver 24.1` as names and values."""
    return {name: value for name, _, value in (part.rpartition(" ") for part in text.split(", "))}
