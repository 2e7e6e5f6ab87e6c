"""Search strategies: one file each, which registers itself; `servelab.search.strategy` is their interface."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from servelab.core.registry import Registry
from servelab.results.checks import unequal_places
from servelab.search.decide import decide_stage
from servelab.search.decision import Decision, rows_of
from servelab.search.proof_plan import ProofStage, plan_proof
from servelab.search.strategy import PastStage, Strategy
from servelab.study.configuration import Load
from servelab.study.plan import Plan, PlannedCandidate, PlannedRun
from servelab.study.project import Project, SearchedPlan, SearchedStudy
from servelab.study.study import PROOF_STAGES, Study

SECONDS_PER_HOUR = 3600.0


def stop(study: Study, plan: Plan, past: Sequence[PastStage]) -> Plan:
    """The plan of a stage, reduced by `stop_when`; unchanged if a past stage has no table."""
    if not plan.applies or not past or any(stage.table is None for stage in past):
        return plan
    hours = study.search.stop_when.accelerator_hours
    return plan if hours is None else _within(hours, plan, past)


def _one_start(candidate: PlannedCandidate) -> dict[str, list[PlannedRun]]:
    """The runs of a candidate on its first server start."""
    first = candidate.runs[0].start if candidate.runs else None
    kinds = ("runs", "points", "answers")
    return {name: [run for run in getattr(candidate, name) if run.start == first] for name in kinds}


def _sizes(candidate: PlannedCandidate) -> dict[str, int]:
    """Load of each run, with the other points of the curve and the questions on its server start, as tables have it."""
    others = (*candidate.points, *candidate.answers)
    return {
        run.run_id: run.load_size + sum(other.load_size for other in others if other.start == run.start)
        for run in candidate.runs
    }


def spent_s(past: Sequence[PastStage]) -> dict[str, float]:
    """Accelerator-seconds of each run of past stages by its id; a run that two stages share counts once."""
    found: dict[str, float] = {}
    for stage in past:
        assert stage.table is not None
        rows = stage.table.dropna(subset=["run_id", "accelerator_s"])
        for runs, seconds in zip(rows["run_ids"], rows["accelerator_s"], strict=True):
            # a row has the sum of its starts, which take about as long
            found |= dict.fromkeys(runs, seconds / len(runs))
    return found


def _within(hours: float, plan: Plan, past: Sequence[PastStage]) -> Plan:
    """The plan without the runs that exceed the budget; the last candidates are dropped first.

    The estimate for a run is the mean of past runs, scaled by the size of its load. For a larger load that is too high
    rather than too low, because a server's start does not grow with the load.
    """
    costs = spent_s(past)
    sizes: dict[str, int] = {}
    for candidate in (each for stage in past for each in stage.plan.candidates):
        sizes |= _sizes(candidate)
    load = sum(sizes[run_id] for run_id in costs)
    if not load:
        return plan
    spent, left_s = sum(costs.values()), SECONDS_PER_HOUR * hours - sum(costs.values())

    def cost_of(candidate: PlannedCandidate) -> float:
        return spent / load * sum(size for run_id, size in _sizes(candidate).items() if run_id not in costs)

    kept: list[PlannedCandidate] = []
    for candidate in plan.candidates:
        cost_s = cost_of(candidate)
        if candidate.is_incumbent and cost_s > left_s:  # it is measured, but no second time
            candidate = candidate.model_copy(update=_one_start(candidate))
            cost_s = cost_of(candidate)
        if cost_s and not candidate.is_incumbent and cost_s > left_s:
            reason = (
                f"budget of {hours:g} accelerator-hours: {spent / SECONDS_PER_HOUR:.3g} are spent, and this run would "
                f"take about {cost_s / SECONDS_PER_HOUR:.2g}, but {max(0.0, left_s) / SECONDS_PER_HOUR:.2g} are left"
            )
            kept.append(candidate.model_copy(update={"runs": [], "points": [], "answers": [], "not_run": reason}))
            continue
        left_s -= cost_s
        kept.append(candidate)
    return plan.model_copy(update={"candidates": kept})


STRATEGIES: Registry[Strategy] = Registry("search strategy")


def strategy_of(study: Study) -> Strategy:
    """The strategy of a study; `ConfigError` on an unknown one."""
    return STRATEGIES.get(study.search.strategy)


def stage_names(study: Study) -> list[str]:
    """The stages of a study in order, the reserved ones of the proof last."""
    return [*(outline.name for outline in strategy_of(study).outlines(study)), *PROOF_STAGES]


def loads(study: Study) -> list[Load]:
    """All loads that runs of the study may have."""
    return [Load(workload=workload) for workload in study.workloads]


def plan(project: Project, stage: str, past: Sequence[PastStage], before: ProofStage | None = None) -> Plan:
    """The plan of one of `stage_names`; `past` are all earlier stages of the search in order.

    `before` is the stage of the proof before this one; None of its first stage, and in an estimate.
    """
    if stage in PROOF_STAGES:
        return plan_proof(project, stage, past, before)
    planned = strategy_of(project.study).plan(project, stage, past)
    return stop(project.study, planned, past)


def decide(
    study: SearchedStudy,
    plan: SearchedPlan,
    table: pd.DataFrame,
) -> Decision:
    """The decision of a stage, for either kind of study; the arguments are those of `decide.decide_stage`."""
    if not (isinstance(study, Study) and isinstance(plan, Plan)):
        return decide_stage(study, plan, table)
    decision = strategy_of(study).decide(study, plan, table)
    return decision.model_copy(update={"unequal_places": unequal_places(rows_of(table))})


STRATEGIES.load(__name__)
