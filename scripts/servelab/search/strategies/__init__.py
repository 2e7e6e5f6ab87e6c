"""Search strategies: one file each, which registers itself; `servelab.search.strategy` is their interface."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from servelab.core.registry import Registry
from servelab.results.unequal_places import unequal_places
from servelab.search.decide import decide_stage
from servelab.search.decision import Decision
from servelab.search.proof_plan import FirstPairs, plan_proof
from servelab.search.standing import rows_of
from servelab.search.stopping import stop
from servelab.search.strategy import PastStage, Strategy
from servelab.study.configuration import Load
from servelab.study.kinds import SearchedPlan, SearchedStudy
from servelab.study.plan import Plan
from servelab.study.project import Project
from servelab.study.study import CONFIRM, CONFIRM_FIRST, Study

STRATEGIES: Registry[Strategy] = Registry("search strategy")


def strategy_of(study: Study) -> Strategy:
    """The strategy of a study; `ConfigError` on an unknown one."""
    return STRATEGIES.get(study.search.strategy)


def stage_names(study: Study) -> list[str]:
    """The stages of a study in order, the reserved ones of the proof last."""
    return [*(outline.name for outline in strategy_of(study).outlines(study)), CONFIRM_FIRST, CONFIRM]


def loads(study: Study) -> list[Load]:
    """All loads that runs of the study may have."""
    whole = [Load(workload=workload) for workload in study.workloads]
    return [*whole, *strategy_of(study).loads(study)]


def plan(project: Project, stage: str, past: Sequence[PastStage], first: FirstPairs | None = None) -> Plan:
    """The plan of one of `stage_names`; `past` are all earlier stages of the search in order.

    `first` are plan and table of `confirm-first`, for the plan of `confirm`; None in an estimate.
    """
    if stage in (CONFIRM_FIRST, CONFIRM):
        return plan_proof(project, stage, past, first)
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
