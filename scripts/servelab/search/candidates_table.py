"""The table of candidates: the outcome of every candidate that a study names, its reason, and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from servelab.metrics.tables import schemas
from servelab.results.parse import SATURATED
from servelab.search.decide import CONSTRAINT_MISSED, NOT_RUN, unfit
from servelab.search.decision import CHANGES_ANSWERS, Decision, Verdict, too_many_failed
from servelab.search.project import load_project
from servelab.search.strategies import outlines
from servelab.study.plan import PlannedCandidate
from servelab.study.project import SearchedPlan, SearchedStudy, StageOutline, StudySummary
from servelab.study.recorded.plan import RecordedPlanCandidate
from servelab.study.recorded.study import RecordedCandidate, RecordedStage, load_recorded
from servelab.study.study import Stage, Study


def workload_titles(path: Path, root: Path = Path()) -> dict[str, str]:
    """Title of each workload of the study at `path`; `root` is the folder that contains config/ and envs/."""
    if path.is_dir():
        return {name: workload.title for name, workload in load_recorded(path).workloads.items()}
    project = load_project(path, root)
    return {name: project.workloads[name].title for name in project.study.workloads}


def describe(study: SearchedStudy, titles: dict[str, str]) -> StudySummary:
    """The study, with titles for its workloads and an outline of its stages."""
    content = study.model_dump(mode="json", exclude={"claims"})
    if isinstance(study, Study):
        content["loads"] = {name: own for name, each in study.workloads.items() if (own := each.own)}
        content["curves"] = {name: _curve(study, points) for name, points in study.curves.items()}
    return StudySummary.model_validate(content | {"workloads": titles, "stages": _outlines(study)})


def _curve(study: Study, points: list[str]) -> dict[str, object]:
    """A `CurveOutline` as data."""
    load = study.workloads[points[0]].load
    assert load is not None
    return {"of": load.of, "points": {name: study.level_of(name) for name in points}}


def _outlines(study: SearchedStudy) -> list[StageOutline]:
    """Each stage that decides, in the order of the search."""
    if isinstance(study, Study):
        return [StageOutline(name=each.name, title=each.title, candidates=each.candidates) for each in outlines(study)]
    return [
        StageOutline(name=stage.name, title=stage.title or stage.name, candidates=candidate_labels(stage))
        for stage in study.stages
    ]


def candidate_labels(stage: Stage | RecordedStage) -> list[str]:
    """Names of a stage's candidates in tables."""
    return [each.title if isinstance(each, RecordedCandidate) else each.name for each in stage.candidates]


Row = dict[str, Any]

OUTCOMES = (
    *("tried", "suspect", CONSTRAINT_MISSED, CHANGES_ANSWERS),
    *("invalid", "failed", "refused", NOT_RUN),
)
"""Possible outcomes of a candidate's run, the worst last."""


class AcceleratorTime(NamedTuple):
    """Accelerator-seconds: all that were reserved, those under load, under the load that decides, and of start-ups."""

    accelerator_s: float
    load_accelerator_s: float
    deciding_accelerator_s: float = 0.0
    start_accelerator_s: float = 0.0


@dataclass(frozen=True)
class CandidatesStage:
    """The files of one stage; `decision` is None for the last one, which has none."""

    plan: SearchedPlan
    table: pd.DataFrame
    """Rows of schemas.STAGE_TABLE."""
    decision: Decision | None


def candidates_table(study: SearchedStudy, stages: Sequence[CandidatesStage]) -> pa.Table:
    """Schema SEARCH: every candidate of every stage, in order; in each stage, those that were not run come last.

    The `new_` columns count a run in the first row that has it.
    """
    stages_of: dict[str, list[str]] = {}
    for stage in stages:
        for run_id in stage.plan.run_ids():
            stages_of.setdefault(run_id, []).append(stage.plan.stage)
    counted: dict[str, AcceleratorTime] = {}
    rows: list[Row] = []
    for stage in stages:
        candidates: Sequence[PlannedCandidate | RecordedPlanCandidate] = stage.plan.candidates
        verdicts = {each.candidate: each for each in (stage.decision.candidates if stage.decision else [])}
        for position, candidate in enumerate(candidates):
            runs: list[Row] = stage.table[stage.table["position"] == position].to_dict("records")  # type: ignore[assignment]
            run_ids = [str(run_id) for run in runs if pd.notna(run["run_id"]) for run_id in run["run_ids"]]
            shared = {name: None for run_id in run_ids for name in stages_of.get(run_id, [])}
            shared.pop(stage.plan.stage, None)
            rows.append(
                _names(stage, position, candidate.candidate)
                | {
                    "is_incumbent": candidate.is_incumbent,
                    "run_ids": run_ids,
                    "shared_with": list(dict.fromkeys(shared)),
                }
                | _outcome_columns(study, runs, verdicts.get(candidate.candidate))
                | _sums([run for run in runs if pd.notna(run["run_id"])], counted, study.objective.on)
            )
        rows += _not_run(study, stage)
    return pa.Table.from_pylist(rows, schema=schemas.SEARCH)


def _names(stage: CandidatesStage, position: int, candidate: str) -> Row:
    return {
        "study": stage.plan.study,
        "stage": stage.plan.stage,
        "stage_title": stage.plan.title,
        "position": position,
        "candidate": candidate,
    }


def _outcome_columns(study: SearchedStudy, runs: Sequence[Row], verdict: Verdict | None) -> Row:
    """Outcome, verdict and reason of a candidate; the reason is the decision's if there is one."""
    runs = [run for run in runs if run["outcome"] != SATURATED] or runs
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
    """Outcome of a run, and its reason."""
    if wrong := unfit(study, run):
        return wrong
    if rate := too_many_failed(study, run):
        return "failed", rate
    return ("suspect", str(run["validity_note"])) if run["validity"] == "suspect" else ("tried", "")


def _time_of(row: Row, on: str) -> AcceleratorTime:
    """The time of a row; the start-ups of a candidate are those of its row under the load that decides."""
    held, load, startup = (
        0.0 if pd.isna(row.get(name)) else float(row[name]) for name in (*AcceleratorTime._fields[:2], "startup_s")
    )
    if row["workload"] != on:
        return AcceleratorTime(held, load)
    return AcceleratorTime(held, load, load, startup * len(row["run_ids"]) * float(row.get("accelerators") or 0))


def _sums(rows: Sequence[Row], counted: dict[str, AcceleratorTime], on: str) -> Row:
    """The columns of accelerator time; `counted` has what earlier rows count, by the first run of each, and is updated.

    Rows of one configuration under one load begin with the same run, and the one with more starts has all runs of the
    others.
    """
    if not rows:
        return {}
    sums: Row = {f"{new}{name}": 0.0 for name in AcceleratorTime._fields for new in ("", "new_")}
    for row in rows:
        before = counted.get(row["run_id"], AcceleratorTime(0.0, 0.0))
        time = _time_of(row, on)
        counted[row["run_id"]] = AcceleratorTime(*map(max, before, time))
        for name, old, new, now in zip(AcceleratorTime._fields, before, counted[row["run_id"]], time, strict=True):
            sums[name] += now
            sums[f"new_{name}"] += new - old
    return sums


def _not_run(study: SearchedStudy, stage: CandidatesStage) -> list[Row]:
    """Candidates that the study names for a stage but its plan does not have."""
    planned = {candidate.candidate for candidate in stage.plan.candidates}
    named = [label for each in study.stages if each.name == stage.plan.stage for label in candidate_labels(each)]
    same = "the same configuration as the incumbent or another candidate of the stage"
    why = stage.plan.reason if not stage.plan.applies else same
    return [
        _names(stage, len(planned) + number, label)
        | {"is_incumbent": False, "outcome": NOT_RUN, "reason": why, "run_ids": [], "shared_with": []}
        for number, label in enumerate(label for label in named if label not in planned)
    ]
