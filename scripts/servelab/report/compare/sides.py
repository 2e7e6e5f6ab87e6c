"""A study's folder, read for a comparison: its runs, their facts, and what they gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from servelab.core.errors import ServelabError
from servelab.core.files import read_json
from servelab.core.identity import canonical_json
from servelab.measure.run_files import RunStatus
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import Basis, per_basis
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.results.compare_with_baseline import Starts
from servelab.search.recommended import Recommended, recommended_of
from servelab.search.verdict import comparison_row, machine_of
from servelab.study.plan import PROOF
from servelab.study.project import StudySummary
from servelab.study.study import AFTER_SEARCH, CONFIRM

COMPARED = (
    *("engine name", "engine version", "engine runtime", "engine environment_sha256"),
    *("hardware accelerator", "hardware device"),
)
"""Fields that a comparison may be about: runs that differ only in these are compared."""

ENGINES_OWN = ("model format", "model conversion")
"""Fields that change with the engine: the same weights in the format that it serves."""

CONFIGURATION = ("hardware count", "arguments ", "environment_variables ", "model", "options ")
"""Fields that a study chooses, in which two answers may differ. Names, and beginnings of names."""

_NOT_SENT = ("objective", "slos", "unless_saturated", "start", "served")
"""Parts of a specification that cannot change a measurement that was made, or follow from the others."""
_SHOWN = 12
"""Characters shown of a hash."""


Facts = Mapping[str, str]
"""Field of a run's specification → its text."""


@dataclass(frozen=True)
class FactDifference:
    """A field in which two runs differ; None where one has no such field."""

    field: str
    a: str | None
    b: str | None

    @property
    def text(self) -> str:
        """`engine version 1.2 → 1.3`."""
        return f"{self.field} {_short(self.a)} → {_short(self.b)}"


def facts_of(spec: Mapping[str, Any]) -> Facts:
    """Facts of a run's specification (RunSpec as JSON, also of older releases).

    The study's own name for the weights is omitted, and so is the metric that ends the rounds if their number is fixed:
    neither can change a measurement. So are the label of the server start, and what the server was given, which follows
    from the rest and from the adapter's version.
    """
    flat = _flat({name: part for name, part in spec.items() if name not in _NOT_SENT})
    flat.pop("model.variant", None)
    return {name.replace(".parameters", "").replace(".", " ", 1): value for name, value in flat.items()}


def differences(a: Facts, b: Facts) -> list[FactDifference]:
    """Every field in which two runs differ."""
    names = dict.fromkeys([*a, *b])
    return [FactDifference(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]


def blocking(found: list[FactDifference], *, answers: bool = False) -> list[FactDifference]:
    """The differences that make two runs not comparable; `answers` of studies may differ in their configuration."""
    fields = {each.field for each in found}
    allowed = COMPARED + (ENGINES_OWN if "engine name" in fields else ())
    return [
        each for each in found if each.field not in allowed and not (answers and each.field.startswith(CONFIGURATION))
    ]


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Leaves of nested JSON by their dotted paths; an empty mapping has none, nulls stay `null`."""
    if isinstance(value, Mapping):
        parts = (_flat(part, f"{name}.{key}" if name else str(key)) for key, part in value.items())
        return {path: leaf for part in parts for path, leaf in part.items()}
    return {name: value if isinstance(value, str) else canonical_json(value)}


def _short(value: str | None) -> str:
    if value is None:
        return "(not given)"
    is_hash = len(value) >= 40 and set(value) <= set("0123456789abcdef")
    return value[:_SHOWN] if is_hash else value


ROLES = ("baseline", "winner")
"""Candidates of the reserved last stage."""


@dataclass
class StudyRun:
    """A study's measurements of a configuration on a workload, on one or more server starts."""

    run_id: str
    """Its first run."""
    workload: str
    engine: str
    version: str
    facts: Facts
    table_row: Mapping[str, Any]
    """Its row of schemas.STAGE_TABLE; null in columns that an older table lacks."""
    starts: Mapping[str, list[float]]
    """Metric → its value on each server start (mean of the rounds), as run."""
    definitions: Mapping[str, str]
    """Metric → the client's own definition, for metrics that it defines differently."""
    machine: Mapping[str, str]
    measured_at: str | None
    """When it ended, ISO 8601; None if its folder is missing."""
    link: Path | None
    """Its folder; None if it is missing."""
    labels: dict[str, None] = field(default_factory=dict)
    """Names of its candidate in the study's stages, in order."""
    is_recommended: bool = False

    @property
    def label(self) -> str:
        """Its names; the names of its roles only if it has no other."""
        own = [name for name in self.labels if name not in ROLES] or list(self.labels)
        return ", ".join(own)

    @property
    def accelerators(self) -> int:
        """Accelerators it used."""
        return int(self.table_row["accelerators"])

    def values(self, metric: str, basis: Basis) -> list[float]:
        """A metric on each start, on a basis; empty if the run lacks it."""
        factor, _ = per_basis(basis, self.accelerators, int(self.table_row["accelerators_per_node"]))
        return [value * factor for value in self.starts.get(metric, [])]


@dataclass(frozen=True)
class JudgedRun:
    """A run with its objective, as `verdict.judge` reads it."""

    run: StudyRun
    values: list[float]

    @property
    def row(self) -> dict[str, Any]:
        """Columns of schemas.STAGE_TABLE."""
        return comparison_row(self.run.table_row, self.values)


@dataclass(frozen=True)
class StudySide:
    """One of two studies."""

    name: str
    """Its name in the comparison."""
    folder: Path
    study: StudySummary
    command: str
    """The serving command that it recommends."""
    runs: list[StudyRun]
    """Every configuration of its stages on each workload once, in order: as its proof measured it, else its search."""

    @property
    def answer(self) -> list[StudyRun]:
        """The recommended configuration's run on each workload."""
        return [run for run in self.runs if run.is_recommended]


def read_side(folder: Path, name: str) -> StudySide:
    """The finished study in a folder of results; `ServelabError` names the file that is missing or cannot be read."""
    if not (proof := folder / "stages" / CONFIRM / "plan.json").exists():
        raise ServelabError(f"{proof}: missing; comparing needs finished, measured studies")
    study = StudySummary.read(folder / "study.json")
    plans = [read_json(folder / "stages" / stage / "plan.json") for stage in _stages(folder, study)]
    recommended = Recommended.read(folder / "recommended.json")
    found: dict[str, StudyRun] = {}
    try:
        for plan in plans:
            for configuration, run in _stage_runs(folder, plan, recommended.changed):
                kept = found.setdefault(configuration, run)
                run.labels = kept.labels | run.labels
                run.is_recommended |= kept.is_recommended
                # the starts of a proof chose nothing; of others, a later stage may have more
                is_proved = any(label.startswith(PROOF) for label in run.table_row["start_labels"])
                if is_proved or run.table_row["starts"] > kept.table_row["starts"]:
                    found[configuration] = run
                else:
                    kept.labels, kept.is_recommended = run.labels, run.is_recommended
    except (LookupError, TypeError, ValueError) as error:
        raise ServelabError(f"{folder}: not results that can be compared: {type(error).__name__} {error}") from None
    return StudySide(name, folder, study, recommended.command, list(found.values()))


def _stages(folder: Path, study: StudySummary) -> list[str]:
    """Stages in the study's order, then others with a plan, then the proof."""
    planned = [stage.name for stage in study.stages]
    more = sorted({file.parent.name for file in folder.glob("stages/*/plan.json")} - {*planned, *AFTER_SEARCH})
    return [*planned, *more, CONFIRM]


def _stage_runs(folder: Path, plan: Mapping[str, Any], changed: bool) -> Iterator[tuple[str, StudyRun]]:
    """Name of a configuration on a workload, equal for all its starts, and what the stage measured of it."""
    stage = folder / "stages" / plan["stage"]
    table = _table(stage / "table.parquet", schemas.STAGE_TABLE)
    rows: dict[str, Any] = {row["run_id"]: row for row in table.to_dict("records")}
    starts = Starts(_table(stage / "rounds.parquet", schemas.ROUNDS))
    metrics = _table(stage / "metrics.parquet", schemas.METRICS)
    definitions: dict[str, dict[str, str]] = {}
    for row in metrics[metrics["definition"].notna()].to_dict("records"):
        definitions.setdefault(row["run_id"], {})[row["metric"]] = row["definition"]
    runs = folder.parents[1] / "runs"
    answer = recommended_of(plan["candidates"], changed) if plan["stage"] == CONFIRM else None
    for candidate in plan["candidates"]:
        for run in candidate["runs"]:
            if run["run_id"] not in rows:  # a further start of a run that is there
                continue
            run_id, spec, workload = run["run_id"], run["spec"], run["workload"]
            place = runs / run_id
            is_here = (place / "status.json").exists()
            yield (
                canonical_json(spec | {"start": None}),
                StudyRun(
                    run_id=run_id,
                    workload=workload,
                    engine=spec["engine"]["name"],
                    version=spec["engine"]["version"],
                    facts=facts_of(spec),
                    table_row=rows[run_id],
                    starts={metric.tag: starts.of_starts(rows[run_id], metric.tag) for metric in METRICS},
                    definitions=definitions.get(run_id, {}),
                    machine=machine_of(place / "manifest.json") if is_here else {},
                    measured_at=_measured_at(runs, rows[run_id]) if is_here else None,
                    link=place if is_here else None,
                    labels={candidate["candidate"]: None},
                    is_recommended=candidate is answer,
                ),
            )


def _measured_at(runs: Path, row: Mapping[str, Any]) -> str:
    """When the last run of a row ended, of those that are here."""
    files = [runs / run_id / "status.json" for run_id in row["run_ids"]]
    return max(RunStatus.read(file).finished_at for file in files if file.exists())


def _table(path: Path, schema: pa.Schema) -> pd.DataFrame:
    """A table's rows; columns that an older table lacks are null."""
    frame = read_table(path).reindex(columns=schema.names).astype(object)
    return frame.where(lambda cells: cells.notna(), None)
