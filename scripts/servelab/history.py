"""Versions of an engine compared on the same configurations, and the study's answer under each set of versions.

What is compared are runs whose specifications differ in nothing but the engine's version, runtime and environment. They
were measured at different times: unlike an interleaved pair, a change holds what the machine did in between, and where
the machine itself has changed, that is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from packaging.version import InvalidVersion, Version

from servelab import compared_schemas
from servelab.answers import Answer, question_id, study_versions, versions_id
from servelab.compare.verdict import comparison_row, judge, machine_changes, machine_of
from servelab.decide import unfit
from servelab.errors import ConfigError
from servelab.metrics import METRICS
from servelab.objective import per_basis
from servelab.parse import parse_run, read_run
from servelab.past_runs import configuration_id, past_runs
from servelab.plan import Load, Plan, PlannedCandidate
from servelab.project import Project
from servelab.run_specs import run_spec
from servelab.spec import EngineSpec, RunSpec
from servelab.statistics import Interval, mean_ci95
from servelab.study import COMPARISON, Study
from servelab.validity import verdict

Row = dict[str, Any]
_CHANGE = ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")


@dataclass
class _Configuration:
    """A configuration under one workload, as the study's plans have it now."""

    workload: str
    labels: dict[str, None] = field(default_factory=dict)
    """Where it stands in the plans, in order."""
    refusals: dict[EngineSpec, str] = field(default_factory=dict)
    """Why a version cannot run it at all, for those that cannot."""


@dataclass(frozen=True)
class _Side:
    """A configuration at one version of its engine."""

    engine: EngineSpec
    run_id: str | None
    row: Row
    """What decides whether it is fit to be compared: columns of schemas.STAGE_TABLE."""
    values: list[float]
    """The objective in each round, on the study's basis."""
    measured_at: str | None
    machine: dict[str, str]

    @property
    def order(self) -> tuple[bool, Any, str]:
        """By version, then by when it was measured: one version may have had several environments."""
        return *_version_order(self.engine.version), self.measured_at or ""


def build_history(project: Project, plans: Sequence[Plan], runs: Path) -> pa.Table:
    """Schema HISTORY: each planned configuration at each measured version of its engine against the version before.

    `plans` are those of all stages, `runs` is `results/runs`. A broken folder of a run that is compared is a
    `ServelabError`.
    """
    study = project.study
    configurations = _configurations(project, plans)
    found: dict[str, list[str]] = {}
    for past in past_runs(runs):
        if (name := configuration_id(past.spec)) in configurations:
            found.setdefault(name, []).append(past.run_id)
    rows = []
    for name, configuration in configurations.items():
        run_ids = found.get(name, [])
        if len(run_ids) + len(configuration.refusals) < 2:
            continue
        sides = [_measured_side(study, runs / run_id) for run_id in run_ids]
        sides += [_refused_side(engine, why) for engine, why in configuration.refusals.items()]
        for before, after in pairwise(sorted(sides, key=lambda side: side.order)):
            place = {"study": study.study, "configuration_id": name, "workload": configuration.workload}
            candidate = ", ".join(configuration.labels)
            rows.append({**place, "candidate": candidate, **_compared(study, before, after)})
    return pa.Table.from_pylist(rows, schema=compared_schemas.HISTORY)


def _configurations(project: Project, plans: Sequence[Plan]) -> dict[str, _Configuration]:
    """What the plans ask for, by `configuration_id`; labels of the reserved last stage only where there is no other."""
    found: dict[str, _Configuration] = {}
    for plan in sorted(plans, key=lambda plan: plan.stage == COMPARISON):
        for candidate in plan.candidates:
            specs = {run.workload: run.spec for run in candidate.runs} or _refused_spec(project, candidate)
            for workload, spec in specs.items():
                name = configuration_id(spec.model_dump(mode="json"))
                entry = found.setdefault(name, _Configuration(workload))
                if plan.stage != COMPARISON or not entry.labels.keys() - {"baseline", "winner"}:
                    entry.labels[candidate.candidate] = None
                if candidate.refused is not None:
                    entry.refusals[spec.engine] = candidate.refused
    return found


def _refused_spec(project: Project, candidate: PlannedCandidate) -> dict[str, RunSpec]:
    """What a refused candidate would have run, by workload; nothing where not even that can be said."""
    workload = project.study.objective.on
    try:
        return {workload: run_spec(project, candidate.configuration, Load(workload=workload))}
    except ConfigError:
        return {}


def _measured_side(study: Study, folder: Path) -> _Side:
    status, data = read_run(study, folder)
    spec = RunSpec.model_validate_json((folder / "spec.json").read_bytes())
    metric, basis = study.objective.metric_and_basis
    factor, _ = per_basis(basis, spec.hardware.count, study.hardware.per_node)
    values: list[float] = []
    validity = note = None
    if status["outcome"] == "ok":
        parsed = parse_run(study, spec, status, data)
        validity, note = verdict(parsed["checks"])
        values = [entry["value"] * factor for entry in parsed["rounds"] if entry["metric"] == metric]
    row = comparison_row({**status, "validity": validity, "validity_note": note}, values)
    return _Side(spec.engine, folder.name, row, values, status["finished_at"], machine_of(folder / "manifest.json"))


def _refused_side(engine: EngineSpec, why: str) -> _Side:
    row = {"outcome": "failed", "reason": "refused", "message": why, "validity": None, "validity_note": None}
    return _Side(engine, None, row, [], None, {})


def _compared(study: Study, before: _Side, after: _Side) -> Row:
    word, why, change = judge(study, before, after)
    metric, basis = study.objective.metric_and_basis
    return {
        "engine": after.engine.name,
        **{f"{name}_before": value for name, value in _columns(study, before).items()},
        **{f"{name}_after": value for name, value in _columns(study, after).items()},
        "machine_changes": machine_changes(before.machine, after.machine),
        "metric": metric,
        "basis": basis,
        "higher_is_better": METRICS.get(metric).higher_is_better,
        "change_percent": change and change.value,
        "change_ci95_low_percent": change and change.low,
        "change_ci95_high_percent": change and change.high,
        "verdict": word,
        "why": why,
    }


def _columns(study: Study, side: _Side) -> Row:
    mean = mean_ci95(side.values) if side.values else Interval(math.nan, None, None)
    unfit_as = unfit(study, side.row)
    return {
        "version": side.engine.version,
        "environment_sha256": side.engine.environment_sha256,
        "run_id": side.run_id,
        "measured_at": side.measured_at,
        "outcome": unfit_as[0] if unfit_as else "ok",
        "validity": side.row["validity"],
        "value": mean.value if side.values else None,
        "ci95_low": mean.low,
        "ci95_high": mean.high,
    }


def answers_table(project: Project, answers: Mapping[str, Answer]) -> pa.Table:
    """Schema ANSWERS: a row for each set of versions, in order of versions.

    `answers` are the study's by their `versions_id`.
    """
    study = project.study
    now, question = versions_id(study_versions(project)), question_id(project)
    rows: list[Row] = []
    before: Answer | None = None
    for name, answer in sorted(answers.items(), key=lambda entry: _answer_order(entry[1])):
        recommended = answer.recommended
        gain: Row = next((row for row in recommended["improvements"] if row["workload"] == study.objective.on), {})
        rows.append(
            {
                "study": study.study,
                "versions_id": name,
                "versions": ", ".join(f"{alias} {engine.version}" for alias, engine in answer.versions.items()),
                "is_current": name == now,
                "same_question": answer.question == question,
                "winner_changed": None if before is None else _chosen(before) != _chosen(answer),
                "candidate": answer.winner,
                "engine": recommended["engine"],
                "engine_version": recommended["engine_version"],
                "command": recommended["command"],
                "metric": recommended["objective"],
                "basis": recommended["per"],
                "value": answer.value,
                "ci95_low": answer.ci95_low,
                "ci95_high": answer.ci95_high,
                **{column: gain.get(column) for column in _CHANGE},
                "run_id": recommended["run_id"],
                "measured_at": answer.measured_at,
            }
        )
        before = answer
    return pa.Table.from_pylist(rows, schema=compared_schemas.ANSWERS)


def _chosen(answer: Answer) -> object:
    return answer.recommended["configuration"]


def _answer_order(answer: Answer) -> tuple[list[tuple[str, bool, Any]], str]:
    versions = [(alias, *_version_order(engine.version)) for alias, engine in sorted(answer.versions.items())]
    return versions, answer.measured_at


def _version_order(version: str) -> tuple[bool, Any]:
    """Key that sorts versions as Python packages number them; others come first, as text."""
    try:
        return True, Version(version)
    except InvalidVersion:
        return False, version
