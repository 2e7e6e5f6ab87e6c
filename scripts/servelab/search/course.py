"""The course of a study's search as far as it is on disk, and a guess at the rest: for telling what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from servelab import schemas, search
from servelab.decide import Decision
from servelab.parse import read_table
from servelab.plan import Plan, plan_comparison, start_of
from servelab.search import Outline, PastStage
from servelab.study import COMPARISON, Study

if TYPE_CHECKING:
    import pandas as pd

    from servelab.project import Project


@dataclass(frozen=True)
class Step:
    """A stage of the course."""

    plan: Plan
    outline: Outline
    is_known: bool
    """All stages before it are decided on the runs of their plans: this is the plan that will be made."""
    is_decided: bool
    """So is this one."""
    engines: frozenset[str]
    """Engines that its incumbent may have; of a known plan the one that it has."""


def follow(project: Project, results: Path) -> Iterator[Step]:
    """The stages of a study in order, `comparison` the last: as decided on disk, and from there on as assumed.

    A decision that was made on other runs is taken for a guess. `results` is the results folder.
    """
    study, strategy = project.study, search.strategy_of(project.study)
    past: list[PastStage] = []
    is_known, engines = True, frozenset({start_of(study).configuration.engine})
    for outline in strategy.outlines(study):
        plan = search.plan(project, outline.name, past)
        decision, is_exact = decision_on_disk(plan, results)
        yield Step(plan, outline, is_known, is_known and is_exact, engines)
        is_known = is_known and is_exact
        past.append(PastStage(plan, decision or strategy.assume(study, plan), _table(study, plan, results)))
        if is_known:
            engines = frozenset({past[-1].winner.configuration.engine})
        else:
            engines |= {engine for named in outline.new_runs if named for engine in named}
    plan = plan_comparison(project, past[-1].winner)
    yield Step(plan, _comparison(study, plan), is_known, False, engines)


def decision_on_disk(plan: Plan, results: Path) -> tuple[Decision | None, bool]:
    """The decision of a plan's stage, if there is one that chose among its candidates.

    Also whether it was made on exactly these runs; only then it is certain.
    """
    file = results / "studies" / plan.study / "stages" / plan.stage / "decision.json"
    try:
        decision = Decision.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None, False
    planned = {each.candidate: each.runs[0].run_id if each.runs else None for each in plan.candidates}
    if not {decision.winner.candidate, *decision.survivors} <= planned.keys():
        return None, False
    return decision, {each.candidate: each.run_id for each in decision.candidates} == planned


def _table(study: Study, plan: Plan, results: Path) -> pd.DataFrame | None:
    """A stage's table, where the search's end hangs on it."""
    file = results / "studies" / plan.study / "stages" / plan.stage / "table.parquet"
    if not study.search.stop_when.given or not file.exists():
        return None
    return read_table(file, schemas.STAGE_TABLE)


def _comparison(study: Study, plan: Plan) -> Outline:
    """Of the workload that decides, baseline and winner were measured before."""
    others = len(study.workloads) - 1
    start = frozenset({start_of(study).configuration.engine})
    return Outline(COMPARISON, plan.title, [], [start] * others + [None] * others, 2 * len(study.workloads))
