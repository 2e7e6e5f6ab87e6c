"""Reads the tables of a study's charts, draws them, and writes them as SVG, PNG and Vega-Lite JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from servelab.charts import CHARTS, Chart
from servelab.errors import ConfigError, ServelabError
from servelab.files import replacing
from servelab.report.inputs import Decision, Study
from servelab.study import COMPARISON

FileFormat = Literal["svg", "png", "json"]
PNG_SCALE = 2


def read_tables(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of all Parquet files, in the order given; columns that one lacks are null there."""
    tables = []
    for path in paths:
        try:
            tables.append(pq.read_table(path))
        except (OSError, pa.ArrowException) as error:
            raise ServelabError(f"{path}: not a readable Parquet file: {error}") from None
    frame: pd.DataFrame = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    return frame


def study_charts(
    study: Study,
    table: pd.DataFrame,
    decisions: Sequence[Decision],
    improvements: pd.DataFrame,
    history: pd.DataFrame | None = None,
    of_runs: Mapping[str, pd.DataFrame] | None = None,
) -> Iterator[tuple[str, Chart, pd.DataFrame]]:
    """Each chart of a study's report: name of its files, the chart, and its rows.

    `table` has the rows of all stage tables. Of the improvements, those of the study's objective are drawn.
    A chart of versions is drawn where `history` (rows of schemas.HISTORY) has any, one of the comparison's runs where
    `of_runs` has rows of them under the name that the chart `reads`.
    """
    metric, basis = study.objective.metric_and_basis
    comparison = table[table["stage"] == COMPARISON].reset_index(drop=True)
    search = add_decisions(table[table["stage"] != COMPARISON].reset_index(drop=True), decisions)
    whole = {
        "improvements": select(improvements, {"metric": metric, "basis": basis}),
        "comparison": comparison,
        "search": search,
    }
    optional = {name: add_sides(rows, study, comparison) for name, rows in (of_runs or {}).items()}
    if history is not None:
        optional["history"] = history
    for chart in CHARTS:
        if chart.reads == "stage":
            for stage in study.stages:
                yield chart.stem(stage.name), chart, select(search, {"stage": stage.name})
        elif chart.reads in whole:
            yield chart.stem(), chart, whole[chart.reads]
        elif len(optional.get(chart.reads, ())):
            yield chart.stem(), chart, optional[chart.reads]


def add_sides(rows: pd.DataFrame, study: Study, comparison: pd.DataFrame) -> pd.DataFrame:
    """Rows of the comparison's runs with `candidate` and `validity`; the workload that decides first, then in order."""
    sides = comparison[["run_id", "workload", "candidate", "validity"]].drop_duplicates(["run_id", "workload"])
    joined = rows.merge(sides, on=["run_id", "workload"])
    order = [study.objective.on, *study.workloads]
    return joined.sort_values("workload", key=lambda names: names.map(order.index), kind="stable", ignore_index=True)


def add_decisions(frame: pd.DataFrame, decisions: Sequence[Decision]) -> pd.DataFrame:
    """Adds `stage_title`, `is_winner` and `change_percent` (against the incumbent) to rows of stage tables."""
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
        change_percent=pd.Series([changes.get(key) for key in keys], dtype=float, index=frame.index),
    )


def select(frame: pd.DataFrame, where: dict[str, str]) -> pd.DataFrame:
    """The rows whose columns have these values, compared as text."""
    for column, value in where.items():
        frame = frame[frame[column].astype(str) == value]
    return frame.reset_index(drop=True)


def write_chart(chart: Chart, frame: pd.DataFrame, outputs: dict[FileFormat, Path]) -> None:
    """Builds the chart once and writes each file whole or not at all; `ConfigError` names missing columns."""
    missing = [column for column in chart.columns if column not in frame]
    if missing:
        raise ConfigError(f"chart {chart.name}: the tables lack {', '.join(missing)}")
    built = chart.build(frame[list(chart.columns)])
    for file_format, path in outputs.items():
        with replacing(path) as temporary:
            built.save(temporary, format=file_format, scale_factor=PNG_SCALE if file_format == "png" else 1)
