"""Compares versions of an engine on the same configurations, and lists the study's answer for each set of versions.

Two runs are compared if their specifications differ only in the engine's version, runtime and environment, and in the
server start; runs of one version are its server starts. Versions were measured at different times: unlike in a pair of
the proof, a change includes what happened to the machine in between.
`machine_changes` reports a changed machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from packaging.version import InvalidVersion, Version
from pydantic import Field

from servelab.core.errors import ConfigError
from servelab.core.files import FiniteOrNull, JsonFile
from servelab.core.identity import canonical_json, content_id
from servelab.core.run_spec import EngineSpec, RunSpec
from servelab.core.seal import faults_of_seal
from servelab.measure.run_files import PlaceFacts, RunStatus, place_brief, place_digest
from servelab.metrics.definitions import METRICS
from servelab.metrics.statistics import Interval, change_columns, mean_ci95
from servelab.metrics.tables import schemas
from servelab.results.parse import Start, columns_of_starts
from servelab.results.past_runs import configuration_id, past_runs
from servelab.results.run_records import incomplete, parse_run, read_run
from servelab.search.decide import StartNoise, start_values, unfit
from servelab.search.decision import too_many_failed
from servelab.search.recommended import Recommended
from servelab.search.verdict import comparison_row, judge, machine_changes, machine_of, noise_of_sides
from servelab.study.configuration import Load
from servelab.study.plan import PROOF, Plan, PlannedCandidate, PlannedRun
from servelab.study.project import Project
from servelab.study.spec_builder import run_spec
from servelab.study.study import LAST_STAGES, Study


class StudyAnswer(JsonFile):
    """`answers/<versions_id>.json`: what was recommended with these versions."""

    versions: dict[str, EngineSpec] = Field(description="Every engine of the study, with version and environment.")
    question: str = Field(description="Hash of everything else in the study; only equal questions are compared.")
    winner: str = Field(description="Label of the recommended configuration, in the search.")
    value: FiniteOrNull = Field(
        description="Its objective on the workload that decides, in the metric's unit, on the study's basis."
    )
    ci95_low: FiniteOrNull = Field(description="Lower end of its 95 % interval over server starts.")
    ci95_high: FiniteOrNull = Field(description="Upper end of it.")
    measured_at: str = Field(description="When the later of winner and baseline ended, ISO 8601.")
    place: PlaceFacts | None = None
    recommended: Recommended = Field(description="The content of `recommended.json`.")


def study_versions(project: Project) -> dict[str, EngineSpec]:
    """Version and environment of each engine of a study, by the study's name for the engine."""
    return {
        alias: EngineSpec(
            name=project.engine(alias).name,
            version=entry.version,
            runtime=entry.runtime,
            environment_sha256=project.environment_sha256(alias),
        )
        for alias, entry in project.study.engines.items()
    }


def versions_id(versions: Mapping[str, EngineSpec]) -> str:
    """Id of a set of versions."""
    return content_id({alias: engine.model_dump(mode="json") for alias, engine in versions.items()})


def question_id(project: Project) -> str:
    """Hash of a study without its engines' versions and its title, with its workloads and client."""
    study = project.study
    return content_id(
        {
            "study": study.model_dump(mode="json", exclude={"engines": True, "title": True, "hardware": {"found_as"}}),
            "engines": {alias: project.engine(alias).name for alias in study.engines},
            "workloads": {name: project.workload_spec(name).model_dump(mode="json") for name in study.workloads},
            "client": project.client_spec().model_dump(mode="json"),
        }
    )


def make_answer(
    project: Project, recommended: Recommended, winner: str, comparison: pd.DataFrame, runs: Path
) -> StudyAnswer:
    """The answer of a finished study; `comparison` is the table (schemas.STAGE_TABLE) of the reserved last stage.

    `winner` is the label of what the search proposed; it is the answer's only if it is recommended.
    """
    row = comparison[comparison["run_id"] == recommended.run_id].iloc[0]
    ids = (recommended.run_id, recommended.baseline_run_id)
    statuses = [RunStatus.read(runs / run_id / "status.json") for run_id in ids]
    return StudyAnswer(
        versions=study_versions(project),
        question=question_id(project),
        winner=winner if recommended.changed else "baseline",
        value=row["objective_value"],
        ci95_low=row["objective_ci95_low"],
        ci95_high=row["objective_ci95_high"],
        measured_at=max(status.finished_at for status in statuses),
        place=statuses[0].place,
        recommended=recommended,
    )


def read_answers(folder: Path) -> dict[str, StudyAnswer]:
    """All answers of a study by the ids of their versions; `ServelabError` names a file that is not an answer."""
    return {file.stem: StudyAnswer.read(file) for file in sorted(folder.glob("*.json"))}


Row = dict[str, Any]
_CHANGE = ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")


@dataclass
class _Configuration:
    """A configuration under one workload, from the study's current plans."""

    workload: str
    labels: dict[str, None] = field(default_factory=dict)
    """Its names in the plans, in order."""
    refusals: dict[EngineSpec, str] = field(default_factory=dict)
    """Version that cannot run it → why."""


@dataclass(frozen=True)
class _Side:
    """A configuration at one version of its engine."""

    engine: EngineSpec
    run_ids: list[str]
    """All runs that its figures are computed from, by label of their server starts; empty if refused before it ran."""
    row: Row
    """Columns of schemas.STAGE_TABLE, which show whether it can be compared."""
    values: list[float]
    """The objective on each server start, on the study's basis."""
    measured_at: str | None
    machine: dict[str, str]

    @property
    def order(self) -> tuple[bool, Any, str]:
        """Sort key: version, then time of measurement, because one version may have had several environments."""
        return *_version_order(self.engine.version), self.measured_at or ""


_Run = tuple[Path, RunSpec]
"""A run's folder, and its specification."""


def build_history(project: Project, plans: Sequence[Plan], runs: Path) -> pa.Table:
    """Schema HISTORY: each planned configuration at each measured version of its engine, against the previous version.

    `plans` are those of all stages, `runs` is `results/runs`. `ServelabError` for a broken folder of a run that is
    compared.
    """
    study = project.study
    configurations = _configurations(project, plans)
    found: dict[str, dict[str, list[_Run]]] = {}
    for past in past_runs(runs):
        if (name := configuration_id(past.spec)) in configurations:
            folder = runs / past.run_id
            of_version = found.setdefault(name, {}).setdefault(canonical_json(past.spec["engine"]), [])
            of_version.append((folder, RunSpec.read(folder / "spec.json")))
    sides: dict[str, list[_Side]] = {}
    for name, configuration in configurations.items():
        versions = found.get(name, {})
        if len(versions) + len(configuration.refusals) >= 2:
            measured = [_measured_side(study, configuration.workload, each) for each in versions.values()]
            sides[name] = measured + [_refused_side(engine, why) for engine, why in configuration.refusals.items()]
    by_workload: dict[str, list[_Side]] = {}
    for name, of_versions in sides.items():
        by_workload.setdefault(configurations[name].workload, []).extend(of_versions)
    noise = {workload: noise_of_sides(each) for workload, each in by_workload.items()}
    rows = []
    for name, of_versions in sides.items():
        workload, candidate = configurations[name].workload, ", ".join(configurations[name].labels)
        place = {"study": study.study, "configuration_id": name, "workload": workload, "candidate": candidate}
        for before, after in pairwise(sorted(of_versions, key=lambda side: side.order)):
            rows.append({**place, **_compared(study, before, after, noise[workload])})
    return pa.Table.from_pylist(rows, schema=schemas.HISTORY)


def _configurations(project: Project, plans: Sequence[Plan]) -> dict[str, _Configuration]:
    """The plans' configurations by `configuration_id`; a label from the reserved last stage only if it has no other."""
    found: dict[str, _Configuration] = {}
    for plan in sorted(plans, key=lambda plan: plan.stage in LAST_STAGES):
        for candidate in plan.candidates:
            specs = {run.workload: run.spec for run in candidate.runs} or _refused_spec(project, candidate)
            for workload, spec in specs.items():
                name = configuration_id(spec.model_dump(mode="json"))
                entry = found.setdefault(name, _Configuration(workload))
                if plan.stage not in LAST_STAGES or not entry.labels.keys() - {"baseline", "winner"}:
                    entry.labels[candidate.candidate] = None
                if candidate.refused is not None:
                    entry.refusals[spec.engine] = candidate.refused
    return found


def _refused_spec(project: Project, candidate: PlannedCandidate) -> dict[str, RunSpec]:
    """Workload → the run of a refused candidate, if it has a specification at all; else empty."""
    workload = project.study.objective.on
    try:
        return {workload: run_spec(project, candidate.configuration, Load(workload=workload))}
    except ConfigError:
        return {}


def _measured_side(study: Study, workload: str, runs: Sequence[_Run]) -> _Side:
    """A configuration at one version: its starts of a proof, which chose nothing, or else those of the search."""
    proved = [run for run in runs if run[1].start.startswith(PROOF)]
    runs = sorted(proved or runs, key=lambda run: run[1].start)
    starts, finished = [], []
    for folder, spec in runs:
        status, data = read_run(study, workload, spec, folder)
        if status.seal is not None and (faults := faults_of_seal(folder)):
            raise incomplete(folder, faults[0])
        planned = PlannedRun(workload=workload, start=spec.start, run_id=folder.name, spec=spec)
        starts.append(Start(planned, status, parse_run(study, spec, status, data) if status.is_ok else {}))
        finished.append(status.finished_at)
    folder, spec = runs[0]
    run_ids = [folder.name for folder, _ in runs]
    found = columns_of_starts(study, spec.hardware.count, starts)
    values = start_values(found)
    row = comparison_row(found, values)
    machine = machine_of(folder / "manifest.json")
    return _Side(spec.engine, run_ids, row, values, max(finished), machine)


def _refused_side(engine: EngineSpec, why: str) -> _Side:
    row = {"outcome": "failed", "reason": "refused", "message": why, "validity": None, "validity_note": None}
    return _Side(engine, [], row, [], None, {})


def _compared(study: Study, before: _Side, after: _Side, noise: StartNoise) -> Row:
    word, why, change = judge(study, before, after, noise=noise)
    metric, basis = study.objective.metric_and_basis
    return {
        "engine": after.engine.name,
        **{f"{name}_before": value for name, value in _columns(study, before).items()},
        **{f"{name}_after": value for name, value in _columns(study, after).items()},
        "machine_changes": machine_changes(before.machine, after.machine),
        "metric": metric,
        "basis": basis,
        "higher_is_better": METRICS.get(metric).higher_is_better,
        **change_columns(change),
        "verdict": word,
        "why": why,
    }


def _columns(study: Study, side: _Side) -> Row:
    mean = mean_ci95(side.values) if side.values else Interval(math.nan, None, None)
    unfit_as = unfit(study, side.row)
    return {
        "version": side.engine.version,
        "environment_sha256": side.engine.environment_sha256,
        "run_id": side.run_ids[0] if side.run_ids else None,
        "run_ids": side.run_ids,
        **_place(side.machine),
        "measured_at": side.measured_at,
        "outcome": unfit_as[0] if unfit_as else "failed" if too_many_failed(study, side.row) else "ok",
        "validity": side.row["validity"],
        "value": mean.value if side.values else None,
        "ci95_low": mean.low,
        "ci95_high": mean.high,
    }


def _place(facts: Mapping[str, str]) -> Row:
    """Columns of a run's place; nulls if it is unknown."""
    return {"place": place_digest(facts) if facts else None, "measured_on": place_brief(facts) or None}


def answers_table(project: Project, answers: Mapping[str, StudyAnswer]) -> pa.Table:
    """Schema ANSWERS: one row per set of versions, in order of versions. `answers` is by `versions_id`."""
    study = project.study
    now, question = versions_id(study_versions(project)), question_id(project)
    rows: list[Row] = []
    before: StudyAnswer | None = None
    for name, answer in sorted(answers.items(), key=lambda entry: _answer_order(entry[1])):
        recommended = answer.recommended
        gain = recommended.improvement(study.objective.on)
        rows.append(
            {
                "study": study.study,
                "versions_id": name,
                "versions": ", ".join(f"{alias} {engine.version}" for alias, engine in answer.versions.items()),
                "is_current": name == now,
                "same_question": answer.question == question,
                "winner_changed": before and before.recommended.configuration != recommended.configuration,
                "candidate": answer.winner,
                "engine": recommended.engine,
                "engine_version": recommended.engine_version,
                "command": recommended.command,
                "metric": recommended.objective,
                "basis": recommended.per,
                "value": answer.value,
                "ci95_low": answer.ci95_low,
                "ci95_high": answer.ci95_high,
                **{column: getattr(gain, column, None) for column in _CHANGE},
                "run_id": recommended.run_id,
                **_place(answer.place.facts if answer.place else {}),
                "measured_at": answer.measured_at,
            }
        )
        before = answer
    return pa.Table.from_pylist(rows, schema=schemas.ANSWERS)


def _answer_order(answer: StudyAnswer) -> tuple[list[tuple[str, bool, Any]], str]:
    versions = [(alias, *_version_order(engine.version)) for alias, engine in sorted(answer.versions.items())]
    return versions, answer.measured_at


def _version_order(version: str) -> tuple[bool, Any]:
    """Key that sorts versions as Python packages do; other texts come first."""
    try:
        return True, Version(version)
    except InvalidVersion:
        return False, version
