"""Draws the charts of a study and writes them as SVG, PNG and Vega-Lite JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import altair as alt
import pandas as pd
import vl_convert

from servelab.core.errors import ConfigError
from servelab.core.files import replacing
from servelab.report.charts import CHARTS, AnyChart, Chart
from servelab.report.charts.curves import with_limits
from servelab.search.decision import Decision
from servelab.study.project import StudySummary
from servelab.study.study import AFTER_SEARCH, LAST_STAGES

FileFormat = Literal["svg", "png", "json"]
PNG_SCALE = 2
_NAMED = re.compile(r'<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*"([^>]*)/>')
"""A mark with a description, as vl-convert writes it."""


def study_charts(
    study: StudySummary,
    table: pd.DataFrame,
    decisions: Sequence[Decision],
    improvements: pd.DataFrame,
    history: pd.DataFrame | None = None,
    of_runs: Mapping[str, pd.DataFrame] | None = None,
    curves: pd.DataFrame | None = None,
) -> Iterator[tuple[str, Chart, pd.DataFrame]]:
    """Each chart of a study's report: name of its files, the chart, and its rows.

    `table` has the rows of all stage tables. Of the improvements, those of the study's objective are drawn. A chart of
    versions needs rows in `history` (schemas.HISTORY), one of curves in `curves` (schemas.CURVES), one of the
    comparison's runs in `of_runs` under the name that it `reads`.
    """
    metric, basis = study.objective.metric_and_basis
    comparison = table[table["stage"].isin(LAST_STAGES)].reset_index(drop=True)
    search = add_decisions(table[~table["stage"].isin(AFTER_SEARCH)].reset_index(drop=True), decisions, study)
    whole = {
        "improvements": select(improvements, {"metric": metric, "basis": basis}),
        "comparison": comparison,
        "search": search,
    }
    optional = {name: add_sides(rows, study, comparison) for name, rows in (of_runs or {}).items()}
    if history is not None:
        optional["history"] = history
    if curves is not None:
        optional["curves"] = with_limits(curves, study)
    for chart in CHARTS:
        if chart.reads == "stage":
            for stage in study.stages:
                yield chart.stem(stage.name), chart, select(search, {"stage": stage.name})
        elif chart.reads in whole:
            yield chart.stem(), chart, whole[chart.reads]
        elif len(optional.get(chart.reads, ())):
            yield chart.stem(), chart, optional[chart.reads]


def add_sides(rows: pd.DataFrame, study: StudySummary, comparison: pd.DataFrame) -> pd.DataFrame:
    """Rows of each side's first run with `candidate` and `validity`; the deciding workload first, then in order."""
    sides = comparison[["run_id", "workload", "candidate", "validity"]].drop_duplicates(["run_id", "workload"])
    joined = rows.merge(sides, on=["run_id", "workload"])
    order = [study.objective.on, *study.workloads]
    return joined.sort_values("workload", key=lambda names: names.map(order.index), kind="stable", ignore_index=True)


def add_decisions(frame: pd.DataFrame, decisions: Sequence[Decision], study: StudySummary) -> pd.DataFrame:
    """Adds `stage_title`, `is_winner`, `change_percent` (against the incumbent) and `too_many_failed` to stage tables.

    `too_many_failed` says that fewer requests succeeded than the study requires; false if they were not counted.
    """
    titles = {decision.stage: decision.title for decision in decisions}
    winners = {(decision.stage, decision.winner.candidate) for decision in decisions}
    changes = {
        (decision.stage, verdict.candidate): verdict.change_percent
        for decision in decisions
        for verdict in decision.candidates
    }
    keys = list(zip(frame["stage"], frame["candidate"], strict=True))
    return frame.assign(
        stage_title=[titles.get(stage, stage) for stage, _ in keys],
        is_winner=pd.Series([key in winners for key in keys], dtype=bool, index=frame.index),
        too_many_failed=frame["success_rate"].astype(float) < study.objective.min_success_rate,
        change_percent=pd.Series([changes.get(key) for key in keys], dtype=float, index=frame.index),
    )


def select(frame: pd.DataFrame, where: dict[str, str]) -> pd.DataFrame:
    """The rows whose columns have these values, compared as text."""
    for column, value in where.items():
        frame = frame[frame[column].astype(str) == value]
    return frame.reset_index(drop=True)


def write_chart(chart: Chart, frame: pd.DataFrame, outputs: dict[FileFormat, Path]) -> None:
    """Builds the chart and writes each file whole or not at all; `ConfigError` names missing columns.

    altair's `save` would validate and draw the chart again for each format.
    """
    missing = [column for column in chart.columns if column not in frame]
    if missing:
        raise ConfigError(f"chart {chart.name}: the tables lack {', '.join(missing)}")
    with alt.data_transformers.disable_max_rows():
        spec, svg = drawing(chart.build(frame[list(chart.columns)]))
    contents: dict[FileFormat, Callable[[], bytes]] = {
        "svg": svg.encode,
        "png": lambda: vl_convert.svg_to_png(svg, scale=PNG_SCALE),
        "json": json.dumps(spec).encode,
    }
    for file_format, path in outputs.items():
        with replacing(path) as temporary:
            temporary.write_bytes(contents[file_format]())


def drawing(chart: AnyChart) -> tuple[dict[str, Any], str]:
    """The Vega-Lite description of a chart, and its SVG."""
    spec = chart.to_dict()
    return spec, with_titles(vl_convert.vegalite_to_svg(spec, vl_version="_".join(alt.SCHEMA_VERSION.split(".")[:2])))


def with_titles(svg: str) -> str:
    """The SVG with the description of each mark that has one as its title, which browsers show without a script."""
    return _NAMED.sub(r"<path\2><title>\1</title></path>", svg)
