"""The candidates of a study that can be told before it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servelab.plan import Configuration, Incumbent, Plan, PlannedCandidate, baseline, key_of, plan_stage, winner_of
from servelab.project import Project
from servelab.search import strategy_of
from servelab.search.course import decision_on_disk


@dataclass(frozen=True)
class Known:
    """A candidate as it would be measured, as far as the winners before it are known."""

    name: str
    """`baseline`, or stage and label."""
    planned: PlannedCandidate
    meets_all_workloads: bool
    """Whether it is measured on every workload of the study for certain, and not only on the one that decides."""

    @property
    def configuration(self) -> Configuration:
        """What it serves with."""
        return self.planned.configuration


def known_candidates(project: Project, results: Path) -> list[Known]:
    """The baseline, and what each stage would add to the incumbent.

    After a stage that is not decided, the next one is put on the incumbent all the same; where it does not apply to
    that, on the first candidate before that it applies to. Each configuration is there once.
    """
    strategy = strategy_of(project.study)
    if strategy.plans_all_at_once:
        return list(_added([strategy.plan(project, project.stage_names[0], [])]).values())
    starts = [baseline(project)]
    plans = []
    for stage in project.study.stages:
        plan = _first_that_applies(project, stage.name, starts)
        plans.append(plan)
        decision, is_certain = decision_on_disk(plan, results)
        winner = winner_of(plan, decision.winner.candidate) if decision else None
        if winner and is_certain:
            starts = [winner]
        else:
            added = [Incumbent(candidate=item.candidate, configuration=item.configuration) for item in plan.candidates]
            starts = _distinct(project, [*([winner] if winner else []), *starts, *added])
    return list(_added(plans).values())


def _added(plans: list[Plan]) -> dict[str, Known]:
    """The baseline, which the first plan starts from, and what each plan adds, by configuration."""
    found = {key_of(plans[0].candidates[0].configuration): Known("baseline", plans[0].candidates[0], True)}
    for plan in plans:
        for planned in plan.candidates[1:]:
            known = Known(f"{plan.stage}: {planned.candidate}", planned, False)
            found.setdefault(key_of(planned.configuration), known)
    return found


def _first_that_applies(project: Project, stage: str, starts: list[Incumbent]) -> Plan:
    """The plan of a stage on the first start that it applies to; on the first of all if on none."""
    plans = (plan_stage(project, stage, start) for start in starts)
    first = next(plans)
    return first if first.applies else next((plan for plan in plans if plan.applies), first)


def _distinct(project: Project, starts: list[Incumbent]) -> list[Incumbent]:
    """One start of all that no condition of a stage can tell apart."""
    named = {key.removeprefix("options.") for stage in project.study.stages for key in stage.when}
    kept: dict[tuple[object, ...], Incumbent] = {}
    for start in starts:
        configuration = start.configuration
        options = tuple(sorted((name, value) for name, value in configuration.options.items() if name in named))
        kept.setdefault((configuration.engine, configuration.model, configuration.accelerators, options), start)
    return list(kept.values())
