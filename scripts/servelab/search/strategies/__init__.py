"""Search strategies: one file each, which registers itself; `servelab.search.decision` is their interface."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pandas as pd

from servelab.core.registry import Registry
from servelab.results.checks import unequal_places
from servelab.search.decide import decide_stage
from servelab.search.decision import Decision, Outline, PastStage, Strategy, rows_of
from servelab.search.planning import plan_stage, proof_size
from servelab.search.proof_plan import SECONDS_PER_HOUR, ProofStage, past_by_second, plan_proof, spent_s
from servelab.study.plan import Plan, PlannedCandidate, PlannedRun
from servelab.study.project import Project, SearchedPlan, SearchedStudy
from servelab.study.study import PROOF_STAGES, PROPOSED, SECOND_PROOF, Study


def stop(project: Project, plan: Plan, past: Sequence[PastStage]) -> Plan:
    """The plan of a stage, reduced by `budget`; unchanged if a past stage has no table."""
    study = project.study
    if not plan.applies or not past or any(stage.table is None for stage in past):
        return plan
    return plan if study.budget is None else _within(study.budget.accelerator_hours, plan, past, proof_size(project))


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


def _within(hours: float, plan: Plan, past: Sequence[PastStage], reserved: int) -> Plan:
    """The plan without the runs that exceed the budget; the last candidates are dropped first.

    `reserved` is the load of the runs that the budget is kept for.

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
    spent = sum(costs.values())
    left_s = SECONDS_PER_HOUR * hours - spent - spent / load * reserved

    def cost_of(candidate: PlannedCandidate) -> float:
        return spent / load * sum(size for run_id, size in _sizes(candidate).items() if run_id not in costs)

    kept: list[PlannedCandidate] = []
    for candidate in plan.candidates:
        cost_s = cost_of(candidate)
        if cost_s > left_s:  # what was measured stays, and the incumbent is measured, but no second time
            candidate = candidate.model_copy(update=_one_start(candidate))
            cost_s = cost_of(candidate)
        if cost_s and not candidate.is_incumbent and cost_s > left_s:
            reason = (
                f"budget of {hours:g} accelerator-hours: {spent / SECONDS_PER_HOUR:.3g} are spent, and this run would "
                f"take about {cost_s / SECONDS_PER_HOUR:.2g}, but {max(0.0, left_s) / SECONDS_PER_HOUR:.2g} are left"
                " besides the proof's first pairs"
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


def outlines(study: Study) -> list[Outline]:
    """The stages of the search in order: the strategy's, then `proposed` if the study has it."""
    added = [each for each in study.stages if each.name == PROPOSED]
    return [
        *strategy_of(study).outlines(study),
        *(Outline(each.name, each.title or each.name, [one.name for one in each.candidates]) for each in added),
    ]


def stage_names(study: Study) -> list[str]:
    """The stages of a study in order, the reserved ones of the proof last."""
    return [*(outline.name for outline in outlines(study)), *chain.from_iterable(study.proofs)]


def plan(project: Project, stage: str, past: Sequence[PastStage], before: ProofStage | None = None) -> Plan:
    """The plan of one of `stage_names`; `past` are all earlier stages of the search in order.

    `before` is the stage of the proof before this one; None of its first stage, and in an estimate.
    """
    if stage in PROOF_STAGES:
        return plan_proof(project, stage, past, before)
    if stage in SECOND_PROOF:
        return plan_proof(project, stage, past_by_second(past), before)
    if stage == PROPOSED:
        planned = plan_stage(project, stage, past[-1].winner)
    else:
        planned = strategy_of(project.study).plan(project, stage, past)
    return stop(project, planned, past)


def decide(study: SearchedStudy, plan: SearchedPlan, table: pd.DataFrame) -> Decision:
    """The decision of a stage, for either kind of study; the arguments are those of `decide.decide_stage`."""
    if not (isinstance(study, Study) and isinstance(plan, Plan)):
        return decide_stage(study, plan, table)
    decide_by = decide_stage if plan.stage == PROPOSED else strategy_of(study).decide
    decision = decide_by(study, plan, table)
    return decision.model_copy(update={"unequal_places": unequal_places(rows_of(table))})


STRATEGIES.load(__name__)
