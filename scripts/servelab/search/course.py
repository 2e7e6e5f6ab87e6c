"""The stages of a study, decided ones as on disk and the others as assumed: shows what is left to measure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from servelab.core.errors import ServelabError
from servelab.metrics.definitions import METRICS
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search import strategies as search
from servelab.search.decide import undecided
from servelab.search.decision import Decision, PastStage
from servelab.search.planning import plan_confirm
from servelab.search.proof_plan import ProofStage
from servelab.study.configuration import Incumbent
from servelab.study.plan import Plan
from servelab.study.predictions import Predictions
from servelab.study.project import Project, StudySummary


class Step(NamedTuple):
    """A stage of the study."""

    plan: Plan
    is_known: bool
    """Whether all stages before it are decided on the runs of their plans, so that `plan` is certain."""


def follow(project: Project, results: Path) -> Iterator[Step]:
    """The stages of a study in order, those of the proof last: first those decided on disk, then the others as assumed.

    A decision that was made on other runs only counts as an assumption. `results` is the results folder.
    """
    project = replace(project, predictions=predictions_on_disk(project, results))
    past: list[PastStage] = []
    is_known = True
    for outline in search.outlines(project.study):
        plan = search.plan(project, outline.name, past)
        found = settled(project, plan, results)
        yield Step(plan, is_known)
        is_known = is_known and found.is_certain
        decision = found.decision or undecided(project.study, plan)
        past.append(PastStage(plan, decision, found.table if is_known else None))
    yield from _proof(project, past, is_known, results)


def predictions_on_disk(project: Project, results: Path) -> Predictions | None:
    """The prior of a study's search; None if it has none, or none yet."""
    with suppress(ServelabError):  # not there, or of another version
        if project.study.search.prior:
            return Predictions.read(results / "studies" / project.study.study / "predicted.json")
    return None


class Settled(NamedTuple):
    """The files about how a planned stage ended."""

    decision: Decision | None
    """None if it is not decided, or was among other candidates."""
    table: pd.DataFrame | None
    """The stage's table, if it has exactly the plan's runs."""
    is_certain: bool
    """Whether the workflow will decide so: it decides from this table."""


def settled(project: Project, plan: Plan, results: Path) -> Settled:
    """How a stage ended, by the rules as they are now: the margin may be new."""
    table = table_on_disk(plan, results)
    if table is not None and _is_of_this_objective(project, plan, results):
        return Settled(search.decide(project.study, plan, table), table, True)
    decision, has_same_runs = _kept_decision(plan, results)
    return Settled(decision, None, has_same_runs and not _file(plan, results, "table.parquet").exists())


def _kept_decision(plan: Plan, results: Path) -> tuple[Decision | None, bool]:
    """The decision on disk if it chose among the plan's candidates, and whether it has exactly those."""
    try:
        decision = Decision.read(_file(plan, results, "decision.json"))
    except ServelabError:
        return None, False
    planned = {each.runs[0].run_id: each.candidate for each in plan.candidates if each.runs}
    same = {each.candidate: each.candidate for each in plan.candidates}
    names = {each.candidate: planned.get(each.run_id or "") or same.get(each.candidate) for each in decision.candidates}
    winner = names.get(decision.winner.candidate)
    if winner is None:
        return None, False
    found = [each.run_id for each in decision.candidates if each.run_id is not None]
    refused = len(decision.candidates) - len(found), len(plan.candidates) - len(planned)
    renamed = decision.model_copy(update={"winner": decision.winner.model_copy(update={"candidate": winner})})
    return renamed, set(found) == planned.keys() and refused[0] == refused[1]


def table_on_disk(plan: Plan, results: Path) -> pd.DataFrame | None:
    """The table of a plan's stage, if it has exactly the plan's runs, and its candidates by their names and order."""
    file = _file(plan, results, "table.parquet")
    if not file.exists():
        return None
    try:
        table = read_table(file, schemas.STAGE_TABLE)
    except ServelabError:  # of another version: it is made again
        return None
    found = {run_id for run_ids in table["run_ids"].dropna() for run_id in run_ids}
    found |= {run_id for run_ids in table["answers_run_ids"].dropna() for run_id in run_ids}
    planned = {run.run_id for candidate in plan.candidates for run in (*candidate.runs, *candidate.answers)}
    names = {at: each.candidate for at, each in enumerate(plan.candidates)}
    is_same = all(names.get(at) == name for at, name in zip(table["position"], table["candidate"], strict=True))
    return table if found == planned and is_same else None


def _is_of_this_objective(project: Project, plan: Plan, results: Path) -> bool:
    """Whether a stage's table has what the study decides by now: its constraints, for example, are in the table."""
    try:
        described = StudySummary.read(results / "studies" / plan.study / "study.json")
    except ServelabError:
        return False
    objective, hardware = project.study.objective, project.study.hardware
    if any(described.slos_of(name) != project.study.slos_of(name) for name in project.study.workloads):
        return False
    decided_later = {"margin_percent"}
    named = [METRICS.get(name) for name in (objective.metric, *objective.constraints)]
    unused = {"found_as"} if any(metric.needs_price for metric in named) else {"found_as", "price_per_accelerator_hour"}
    return described.objective.model_dump(exclude=decided_later) == objective.model_dump(
        exclude=decided_later
    ) and described.hardware.model_dump(exclude=unused) == hardware.model_dump(exclude=unused)


def _proof(project: Project, past: list[PastStage], is_known: bool, results: Path) -> Iterator[Step]:
    """The stages of the proof. While the winner is not known, another candidate than the baseline stands in for it."""
    proofs = project.study.proofs
    if not is_known:
        for number, stages in enumerate(proofs, 1 - len(proofs)):
            yield Step(plan_confirm(project, _stand_in(past, number), project.study.proof.pairs, stages[-1]), False)
        return
    for stages in proofs:
        before: ProofStage | None = None
        is_certain = True
        for stage in stages:
            plan = search.plan(project, stage, past, before)
            yield Step(plan, is_certain)
            is_same = before is not None and before.plan.run_ids() == plan.run_ids()
            table = before.table if is_same and before else table_on_disk(plan, results) if is_certain else None
            before = before if table is None else ProofStage(plan, table)
            is_certain = table is not None or len(plan.candidates) == 1


def _stand_in(past: list[PastStage], number: int) -> Incumbent:
    """The winner as assumed, or if that is the baseline, the first candidate that was planned beside it.

    With the number -1, of the second of two objectives, it is the last such candidate.
    """
    winner, (first, *others) = past[-1].winner, past[0].plan.candidates
    found = [Incumbent(candidate=each.candidate, configuration=each.configuration) for each in others if each.runs]
    found = [winner, *found] if winner.configuration != first.configuration else found
    return found[number] if found else winner


def _file(plan: Plan, results: Path, name: str) -> Path:
    return results / "studies" / plan.study / "stages" / plan.stage / name
