"""The candidates of a study that can be told before it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servelab.forecast import stage_winner
from servelab.plan import Configuration, Incumbent, Plan, PlannedCandidate, baseline, plan_stage
from servelab.project import Project


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
    start = baseline(project)
    starts = [start]
    found: dict[str, Known] = {}
    for stage in project.study.stages:
        plan = _first_that_applies(project, stage.name, starts)
        found.setdefault(_key(start.configuration), Known("baseline", plan.candidates[0], True))
        for planned in plan.candidates[1:]:
            name = f"{stage.name}: {planned.candidate}"
            found.setdefault(_key(planned.configuration), Known(name, planned, False))
        winner, is_certain = stage_winner(project, plan, results)
        if winner and is_certain:
            starts = [winner]
        else:
            added = [Incumbent(candidate=item.candidate, configuration=item.configuration) for item in plan.candidates]
            starts = _distinct(project, [*([winner] if winner else []), *starts, *added])
    return list(found.values())


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


def _key(configuration: Configuration) -> str:
    return configuration.model_dump_json()
