"""The figures of a finished study that are exported: answer, published changes, curves, and the time they took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from servelab.core.errors import ConfigError
from servelab.metrics.definitions import METRICS
from servelab.metrics.tables.io import read_table
from servelab.search.recommended import Recommended

_PUBLISHED = ("proof", "logs")
"""Evidence of figures that are published; those of the search only choose."""


@dataclass(frozen=True)
class ExportedFigure:
    """A number with its labels; `level` is the point of a curve, None elsewhere."""

    name: str
    """`total_tokens_per_s`, with the unit in it; `answer` is 1, and its labels are what it says."""
    unit: str
    value: float
    labels: Mapping[str, str]
    level: float | None = None


@dataclass(frozen=True)
class Exported:
    """A finished study."""

    study: str
    answer: Recommended
    figures: list[ExportedFigure]
    files: list[Path]
    """Answer, report and tables, to be handed over as they are."""


def exported(folder: Path) -> Exported:
    """The study in `results/studies/<study>` or `results/recorded/<study>`; `ConfigError` if it is not finished."""
    if not (folder / "recommended.json").exists():
        raise ConfigError(f"{folder}: has no recommended.json, so the study is not finished; run it first")
    answer = Recommended.read(folder / "recommended.json")
    about = {"study": answer.study, "engine": answer.engine, "engine_version": answer.engine_version}
    kept = ExportedFigure("answer", "1", 1.0, about | {"evidence": answer.evidence, "command": answer.command})
    figures = [kept, *_changes(folder / "improvements.parquet"), *_curves(folder / "curves.parquet"), *_times(folder)]
    files = [folder / name for name in ("recommended.json", "report.html", "report.md")]
    tables = sorted(path for path in folder.glob("*.parquet"))
    shown = sorted(folder.glob("tables/*.csv"))
    files = [path for path in [*files, *tables, *shown] if path.exists()]
    return Exported(answer.study, answer, [figure for figure in figures if math.isfinite(figure.value)], files)


def _changes(file: Path) -> Iterator[ExportedFigure]:
    """Both sides of the published comparison on each workload and metric, and the change with its interval."""
    for row in _rows(file):
        if row["evidence"] not in _PUBLISHED:
            continue
        labels = {name: str(row[name]) for name in ("study", "stage", "workload", "basis", "evidence")}
        unit = METRICS.get(row["metric"]).unit
        for side, column in (("baseline", "baseline_value"), (row["candidate"], "value")):
            yield ExportedFigure(row["metric"], unit, row[column], labels | {"candidate": side})
        labels |= {"candidate": row["candidate"], "metric": row["metric"]}
        for column in ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent"):
            yield ExportedFigure(column, "%", row[column], labels)


def _curves(file: Path) -> Iterator[ExportedFigure]:
    """The objective of each configuration at each point of each curve."""
    for row in _rows(file) if file.exists() else ():
        labels = {name: str(row[name]) for name in ("study", "curve", "stage", "candidate", "load")}
        labels |= {"basis": row["objective_per"]}
        unit = METRICS.get(row["objective"]).unit
        for suffix in ("value", "ci95_low", "ci95_high"):
            name = row["objective"] + ("" if suffix == "value" else f"_{suffix}")
            yield ExportedFigure(f"curve_{name}", unit, row[f"objective_{suffix}"], labels, row["level"])


def _times(folder: Path) -> Iterator[ExportedFigure]:
    """Accelerator-seconds of each stage, without what an earlier stage had measured."""
    rows = _rows(folder / "search.parquet") if (folder / "search.parquet").exists() else []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        of_stage = [row for row in rows if row["stage"] == stage]
        labels = {"study": of_stage[0]["study"], "stage": stage}
        taken = (row["new_accelerator_s"] for row in of_stage)
        yield ExportedFigure("accelerator_s", "s", sum(value for value in taken if value == value), labels)


def _rows(file: Path) -> list[dict[str, Any]]:
    frame = read_table(file)
    return [
        {str(name): math.nan if value is None else value for name, value in row.items()}
        for row in frame.astype(object).where(frame.notna(), None).to_dict("records")
    ]


def client(module: str) -> ModuleType:
    """A module of a client; `ConfigError` with the command that installs it if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed here; use `make export`, which installs it") from None
