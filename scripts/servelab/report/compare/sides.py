"""A study's folder, live or recorded, read for a comparison: its runs, what they are, and what they gave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.core.identity import canonical_json
from servelab.measure.run_files import RunStatus
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import Basis, per_basis
from servelab.metrics.tables import schemas
from servelab.report.compare.facts import Facts, live_facts, recorded_facts
from servelab.results.compare_with_baseline import Starts
from servelab.search.recommended import Recommended, recommended_of
from servelab.search.verdict import comparison_row, machine_of
from servelab.study.plan import PROOF
from servelab.study.project import StudySummary
from servelab.study.study import AFTER_SEARCH, COMPARISON, CONFIRM, LAST_STAGES

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
    """Metric → its value on each server start (mean of the rounds), or in each log, as run."""
    definitions: Mapping[str, str]
    """Metric → the client's own definition, for metrics that it defines differently."""
    machine: Mapping[str, str]
    measured_at: str | None
    """When it ended, ISO 8601; None for a recorded run, and if its folder is missing."""
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
        """A metric on each start, or in each log, on a basis; empty if the run lacks it."""
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
    is_recorded: bool
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
    study = StudySummary.read(folder / "study.json")
    plans = [_json(folder / "stages" / stage / "plan.json") for stage in _stages(folder, study)]
    candidates = [candidate for plan in plans for candidate in plan["candidates"]]
    is_recorded = any("reference" in candidate for candidate in candidates)
    recommended = Recommended.read(folder / "recommended.json")
    found: dict[str, StudyRun] = {}
    try:
        for plan in plans:
            for configuration, run in _stage_runs(folder, plan, is_recorded, recommended.changed):
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
    return StudySide(
        name=name,
        folder=folder,
        is_recorded=is_recorded,
        study=study,
        command=recommended.command,
        runs=list(found.values()),
    )


def _stages(folder: Path, study: StudySummary) -> list[str]:
    """Stages in the study's order, then others with a plan, then the reserved last one."""
    planned = [stage.name for stage in study.stages]
    more = sorted({file.parent.name for file in folder.glob("stages/*/plan.json")} - {*planned, *AFTER_SEARCH})
    last = CONFIRM if (folder / "stages" / CONFIRM).exists() else COMPARISON
    return [*planned, *more, last]


def _stage_runs(
    folder: Path, plan: Mapping[str, Any], is_recorded: bool, changed: bool
) -> Iterator[tuple[str, StudyRun]]:
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
    answer = recommended_of(plan["candidates"], changed) if plan["stage"] in LAST_STAGES else None
    for candidate in plan["candidates"]:
        for run in candidate["runs"]:
            if run["run_id"] not in rows:  # a further start of a run that is there
                continue
            run_id, spec, workload = run["run_id"], run["spec"], run["workload"]
            engine = (spec["engine"], spec["engine_version"]) if is_recorded else _engine(spec)
            facts = recorded_facts(spec, workload) if is_recorded else live_facts(spec, workload, candidate["command"])
            place = runs / run_id
            is_here = not is_recorded and (place / "status.json").exists()
            of_metric = starts.of_logs if is_recorded else starts.of_starts
            yield (
                run_id if is_recorded else canonical_json(spec | {"start": None}),
                StudyRun(
                    run_id=run_id,
                    workload=workload,
                    engine=engine[0],
                    version=engine[1],
                    facts=facts,
                    table_row=rows[run_id],
                    starts={metric.tag: of_metric(rows[run_id], metric.tag) for metric in METRICS},
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


def _engine(spec: Mapping[str, Any]) -> tuple[str, str]:
    return spec["engine"]["name"], spec["engine"]["version"]


def _table(path: Path, schema: pa.Schema) -> pd.DataFrame:
    """A table's rows; columns that an older table lacks are null."""
    try:
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise ServelabError(
            f"{path}: not a readable Parquet file ({error}); a comparison needs finished studies"
        ) from None
    return frame.reindex(columns=schema.names).astype(object).where(lambda cells: cells.notna(), None)


def _json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except OSError as error:
        raise ServelabError(f"{path}: {error.strerror}; a comparison needs finished studies") from None
    except ValueError as error:
        raise ServelabError(f"{path}: not JSON: {error}") from None
    return content
