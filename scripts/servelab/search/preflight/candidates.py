"""The candidates of a study that are known before it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servelab.search.course import settled
from servelab.search.planning import plan_stage
from servelab.search.strategies import stage_names, strategy_of
from servelab.study.configuration import Configuration, Incumbent, baseline, key_of
from servelab.study.plan import Plan, PlannedCandidate, winner_of
from servelab.study.project import Project


@dataclass(frozen=True)
class Known:
    """A candidate as it would be measured, given the winners known so far."""

    name: str
    """`baseline`, or stage and label."""
    planned: PlannedCandidate
    meets_all_workloads: bool
    """Whether it is certainly measured on every workload of the study, not only on the one that decides."""

    @property
    def configuration(self) -> Configuration:
        """Its serving configuration."""
        return self.planned.configuration


def known_candidates(project: Project, results: Path) -> list[Known]:
    """The baseline, and the candidates that each stage would add, without repeated configurations.

    If a stage is not decided, the next one starts from its incumbent; if the next one does not apply to that, it starts
    from the first earlier candidate to which it applies.
    """
    strategy = strategy_of(project.study)
    if strategy.plans_all_at_once:
        return list(_added([strategy.plan(project, stage_names(project.study)[0], [])]).values())
    starts = [baseline(project.study)]
    plans = []
    for stage in project.study.stages:
        plan = _first_that_applies(project, stage.name, starts)
        plans.append(plan)
        found = settled(project, plan, results)
        winner = winner_of(plan, found.decision.winner.candidate) if found.decision else None
        if winner and found.is_certain:
            starts = [winner]
        else:
            added = [Incumbent(candidate=item.candidate, configuration=item.configuration) for item in plan.candidates]
            starts = _distinct(project, [*([winner] if winner else []), *starts, *added])
    return list(_added(plans).values())


def _added(plans: list[Plan]) -> dict[str, Known]:
    """The baseline, from which the first plan starts, and the candidates that each plan adds, by configuration."""
    found = {key_of(plans[0].candidates[0].configuration): Known("baseline", plans[0].candidates[0], True)}
    for plan in plans:
        for planned in plan.candidates[1:]:
            known = Known(f"{plan.stage}: {planned.candidate}", planned, False)
            found.setdefault(key_of(planned.configuration), known)
    return found


def _first_that_applies(project: Project, stage: str, starts: list[Incumbent]) -> Plan:
    """The plan of a stage from the first start to which it applies, or else from the first start."""
    plans = (plan_stage(project, stage, start) for start in starts)
    first = next(plans)
    return first if first.applies else next((plan for plan in plans if plan.applies), first)


def _distinct(project: Project, starts: list[Incumbent]) -> list[Incumbent]:
    """The starts without those that no stage's condition can distinguish from an earlier one."""
    named = {key.removeprefix("options.") for stage in project.study.stages for key in stage.when}
    kept: dict[tuple[object, ...], Incumbent] = {}
    for start in starts:
        configuration = start.configuration
        options = tuple(sorted((name, value) for name, value in configuration.options.items() if name in named))
        kept.setdefault((configuration.engine, configuration.model, configuration.accelerators, options), start)
    return list(kept.values())
