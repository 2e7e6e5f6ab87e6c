"""The audit of a search: what became of every candidate that a study names, why, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from servelab import schemas
from servelab.decide import CONSTRAINT_MISSED, NOT_RUN, Decision, Verdict, unfit
from servelab.describe import candidate_labels
from servelab.plan import PlannedCandidate
from servelab.recorded.plan import RecordedPlanCandidate
from servelab.searched import SearchedPlan, SearchedStudy

Row = dict[str, Any]

OUTCOMES = ("tried", "suspect", CONSTRAINT_MISSED, "invalid", "failed", "refused", NOT_RUN)
"""What may become of a candidate's run, the worst last."""


class Held(NamedTuple):
    """Accelerator-seconds: all that were held, and those of them under load."""

    accelerator_s: float
    load_accelerator_s: float


@dataclass(frozen=True)
class AuditedStage:
    """What a stage left; `decision` is None for the comparison, which decides nothing."""

    plan: SearchedPlan
    table: pd.DataFrame
    """Rows of schemas.STAGE_TABLE."""
    decision: Decision | None


def audit_search(
    study: SearchedStudy,
    stages: Sequence[AuditedStage],
    pairs: Mapping[str, Held],
    elsewhere: Mapping[str, Sequence[str]],
) -> pa.Table:
    """Schema SEARCH: every candidate of every stage, in order, those that were not run behind the others.

    `pairs` has what each pair that decided something held, `elsewhere` the stages of other studies that have a run, by
    run, as `studies/<study>/<stage>`. A run counts in the first row that has it.
    """
    stages_of: dict[str, list[str]] = {}
    for stage in stages:
        for run_id in stage.plan.run_ids():
            stages_of.setdefault(run_id, []).append(stage.plan.stage)
    counted: set[str] = set()
    rows: list[Row] = []
    for stage in stages:
        candidates: Sequence[PlannedCandidate | RecordedPlanCandidate] = stage.plan.candidates
        for position, candidate in enumerate(candidates):
            runs: list[Row] = stage.table[stage.table["position"] == position].to_dict("records")  # type: ignore[assignment]
            verdict = _verdict_of(stage, candidate.candidate)
            held = {str(run["run_id"]): Held(*_seconds(run)) for run in runs if pd.notna(run["run_id"])}
            shared = [
                who
                for run_id in held
                for who in [*stages_of[run_id], *elsewhere.get(run_id, [])]
                if who != stage.plan.stage
            ]
            measured = held | ({verdict.pair_id: pairs[verdict.pair_id]} if verdict and verdict.pair_id else {})
            rows.append(
                _names(stage, position, candidate.candidate)
                | {"is_incumbent": candidate.is_incumbent, "run_ids": list(held), "shared_with": _once(shared)}
                | _became(study, runs, verdict)
                | {"pair_id": verdict.pair_id if verdict else None}
                | _sums(measured, counted)
            )
            counted |= measured.keys()
        rows += _not_run(study, stage)
    return pa.Table.from_pylist(rows, schema=schemas.SEARCH)


def stages_elsewhere(plans: Mapping[str, Sequence[str]], own: str) -> dict[str, list[str]]:
    """Run → stages of other studies that have it; `plans` has the runs of each stage `studies/<study>/<stage>`.

    `own` is the study's own folder, `studies/<study>`.
    """
    found: dict[str, list[str]] = {}
    for stage, run_ids in sorted(plans.items()):
        if not stage.startswith(f"{own}/"):
            for run_id in run_ids:
                found.setdefault(run_id, []).append(stage)
    return found


def _names(stage: AuditedStage, position: int, candidate: str) -> Row:
    return {
        "study": stage.plan.study,
        "stage": stage.plan.stage,
        "stage_title": stage.plan.title,
        "position": position,
        "candidate": candidate,
    }


def _verdict_of(stage: AuditedStage, candidate: str) -> Verdict | None:
    entries = stage.decision.candidates if stage.decision else []
    return next((entry for entry in entries if entry.candidate == candidate), None)


def _became(study: SearchedStudy, runs: Sequence[Row], verdict: Verdict | None) -> Row:
    """Outcome, verdict and reason of a candidate; the decision's reason, where one was made, says all of it."""
    found = [_outcome(study, run) for run in runs]
    outcome = max((word for word, _ in found), key=OUTCOMES.index, default=NOT_RUN)
    several = len(runs) > 1
    saw = [f"{run['workload']}: {why}" if several else why for run, (_, why) in zip(runs, found, strict=True) if why]
    return {
        "outcome": outcome,
        "verdict": verdict.verdict if verdict else None,
        "reason": verdict.why if verdict else "; ".join(saw) or None,
    }


def _outcome(study: SearchedStudy, run: Row) -> tuple[str, str]:
    """What became of a run, and why."""
    if wrong := unfit(study, run):
        return wrong
    return ("suspect", str(run["validity_note"])) if run["validity"] == "suspect" else ("tried", "")


def _seconds(run: Row) -> tuple[float, float]:
    return tuple(0.0 if pd.isna(run[name]) else float(run[name]) for name in Held._fields)  # type: ignore[return-value]


def _sums(measured: Mapping[str, Held], counted: set[str]) -> Row:
    """The columns of accelerator time; `counted` are runs and pairs of rows before."""
    if not measured:
        return {}
    new = [held for name, held in measured.items() if name not in counted]
    sums: Row = {}
    for name in Held._fields:
        sums[name] = sum(getattr(held, name) for held in measured.values())
        sums[f"new_{name}"] = sum(getattr(held, name) for held in new)
    return sums


def _not_run(study: SearchedStudy, stage: AuditedStage) -> list[Row]:
    """Candidates that the study names for a stage and its plan does not have."""
    planned = {candidate.candidate for candidate in stage.plan.candidates}
    named = [label for each in study.stages if each.name == stage.plan.stage for label in candidate_labels(each)]
    why = stage.plan.reason if not stage.plan.applies else "the same configuration as the incumbent or a candidate here"
    return [
        _names(stage, len(planned) + number, label)
        | {"is_incumbent": False, "outcome": NOT_RUN, "reason": why, "run_ids": [], "shared_with": []}
        for number, label in enumerate(label for label in named if label not in planned)
    ]


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
