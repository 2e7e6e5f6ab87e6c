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

from servelab import schemas
from servelab.compare.facts import Facts, live_facts, recorded_facts
from servelab.compare.verdict import comparison_row, machine_of
from servelab.errors import ServelabError
from servelab.objective import Basis, per_basis
from servelab.report.inputs import Study, read
from servelab.study import COMPARISON

ROLES = ("baseline", "winner")
"""Candidates of the reserved last stage."""


@dataclass
class Run:
    """A run of a study."""

    run_id: str
    workload: str
    engine: str
    version: str
    facts: Facts
    table_row: Mapping[str, Any]
    """Its row of schemas.STAGE_TABLE; nulls in columns that an older one lacks."""
    rounds: Mapping[str, list[float]]
    """Metric → its value in each round, as run."""
    definitions: Mapping[str, str]
    """Metric → how the client defines it otherwise, for those that it does."""
    machine: Mapping[str, str]
    measured_at: str | None
    """When it ended, ISO 8601; None for a recorded run, and where its folder is not there."""
    link: Path | None
    """What shows it: its folder, or nothing."""
    labels: dict[str, None] = field(default_factory=dict)
    """Names of its candidate in the study's stages, in order."""
    is_winner: bool = False

    @property
    def label(self) -> str:
        """Its names; those of its roles only where it has no other."""
        own = [name for name in self.labels if name not in ROLES] or list(self.labels)
        return ", ".join(own)

    @property
    def accelerators(self) -> int:
        """Accelerators it used."""
        return int(self.table_row["accelerators"])

    def values(self, metric: str, basis: Basis) -> list[float]:
        """A metric in each round on a basis; empty where it has none."""
        factor, _ = per_basis(basis, self.accelerators, int(self.table_row["accelerators_per_node"]))
        return [value * factor for value in self.rounds.get(metric, [])]


@dataclass(frozen=True)
class JudgedRun:
    """A run with its objective, as `verdict.judge` reads it."""

    run: Run
    values: list[float]

    @property
    def row(self) -> dict[str, Any]:
        """Columns of schemas.STAGE_TABLE."""
        return comparison_row(self.run.table_row, self.values)


@dataclass(frozen=True)
class StudySide:
    """One of two studies."""

    name: str
    """What it is called in the comparison."""
    folder: Path
    is_recorded: bool
    study: Study
    content: Mapping[str, Any]
    """`study.json` as it is."""
    command: str
    """The serving command that it recommends."""
    runs: list[Run]
    """Every run of its stages once, in order."""

    @property
    def answer(self) -> list[Run]:
        """The winner's run on each workload."""
        return [run for run in self.runs if run.is_winner]


def read_side(folder: Path, name: str) -> StudySide:
    """The finished study in a folder of results; `ServelabError` names the file that is missing or cannot be read."""
    study = read(folder / "study.json", Study)
    plans = [_json(folder / "stages" / stage / "plan.json") for stage in _stages(folder, study)]
    candidates = [candidate for plan in plans for candidate in plan["candidates"]]
    is_recorded = any("reference" in candidate for candidate in candidates)
    found: dict[str, Run] = {}
    try:
        for plan in plans:
            for run in _stage_runs(folder, plan, is_recorded):
                kept = found.setdefault(run.run_id, run)
                kept.labels |= run.labels
                kept.is_winner |= run.is_winner
    except (LookupError, TypeError, ValueError) as error:
        raise ServelabError(f"{folder}: not results that can be compared: {type(error).__name__} {error}") from None
    return StudySide(
        name=name,
        folder=folder,
        is_recorded=is_recorded,
        study=study,
        content=_json(folder / "study.json"),
        command=str(_json(folder / "recommended.json").get("command")),
        runs=list(found.values()),
    )


def _stages(folder: Path, study: Study) -> list[str]:
    """Stages in the study's order, then any that it has beside those, the reserved last one at the end."""
    planned = [stage.name for stage in study.stages]
    more = sorted({file.parent.name for file in folder.glob("stages/*/plan.json")} - {*planned, COMPARISON})
    return [*planned, *more, COMPARISON]


def _stage_runs(folder: Path, plan: Mapping[str, Any], is_recorded: bool) -> Iterator[Run]:
    stage = folder / "stages" / plan["stage"]
    table = _table(stage / "table.parquet", schemas.STAGE_TABLE)
    rows: dict[str, Any] = {row["run_id"]: row for row in table.to_dict("records")}
    rounds = _table(stage / "rounds.parquet", schemas.ROUNDS)
    values: dict[str, dict[str, list[float]]] = {}
    for row in rounds.drop_duplicates(["run_id", "metric", "round"]).sort_values("round").to_dict("records"):
        values.setdefault(row["run_id"], {}).setdefault(row["metric"], []).append(row["value"])
    metrics = _table(stage / "metrics.parquet", schemas.METRICS)
    definitions: dict[str, dict[str, str]] = {}
    for row in metrics[metrics["definition"].notna()].to_dict("records"):
        definitions.setdefault(row["run_id"], {})[row["metric"]] = row["definition"]
    runs = folder.parents[1] / "runs"
    for candidate in plan["candidates"]:
        for run in candidate["runs"]:
            run_id, spec, workload = run["run_id"], run["spec"], run["workload"]
            engine = (spec["engine"], spec["engine_version"]) if is_recorded else _engine(spec)
            facts = recorded_facts(spec, workload) if is_recorded else live_facts(spec, workload, candidate["command"])
            place = runs / run_id
            is_here = not is_recorded and (place / "status.json").exists()
            yield Run(
                run_id=run_id,
                workload=workload,
                engine=engine[0],
                version=engine[1],
                facts=facts,
                table_row=rows[run_id],
                rounds=values.get(run_id, {}),
                definitions=definitions.get(run_id, {}),
                machine=machine_of(place / "manifest.json") if is_here else {},
                measured_at=_json(place / "status.json").get("finished_at") if is_here else None,
                link=place if is_here else None,
                labels={candidate["candidate"]: None},
                is_winner=plan["stage"] == COMPARISON and candidate is plan["candidates"][-1],
            )


def _engine(spec: Mapping[str, Any]) -> tuple[str, str]:
    return spec["engine"]["name"], spec["engine"]["version"]


def _table(path: Path, schema: pa.Schema) -> pd.DataFrame:
    """A table's rows; columns that an older one lacks are null."""
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
