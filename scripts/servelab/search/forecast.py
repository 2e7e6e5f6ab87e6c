"""Estimates what is left of a study, per engine: runs, server starts and accelerator time.

There are two estimates, because winners that are not known yet decide what is planned next. *At most* is a worst case:
every stage applies, the proof needs all its pairs, and every round hits the time limits of its start, its warm-up and
its load. *About* assumes that winners stay as they are on disk (or incumbents, if there is no winner yet), that the
proof needs its first pairs only, and that a server start and a run take as long as similar past ones did, or, where
there are none, as `servelab.results.expected_times` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from servelab.core.run_spec import MOST_STEPS, RunSpec, Strict
from servelab.measure.inputs import longest_s
from servelab.results.expected_times import expected_time
from servelab.results.past_runs import PastTimes, VisitTime, split_text
from servelab.search.course import Step, follow
from servelab.search.power import past_noise, power_text
from servelab.search.strategies import strategy_of
from servelab.study.configuration import accelerator_counts
from servelab.study.plan import Plan
from servelab.study.project import Project

_MOST_SHOWN = 20
"""Candidates of the next stage that are listed at most."""


class Left(Strict):
    """Runs left, the server starts that serve them, and their accelerator-seconds."""

    most: int
    most_starts: int
    most_s: float
    about: int
    about_starts: int
    about_s: float | None
    """None if one of them has no similar past run, and the size of its model is not known."""
    about_load_s: float | None
    """The part of `about_s` under load."""
    is_past: bool
    """Whether all of these have similar past runs."""

    def hours(self) -> str:
        """`about 0.2 accelerator-hours by past runs (71 % of it under load), at most 3.1 accelerator-hours`."""
        bound = f"at most {_hours(self.most_s)} accelerator-hours"
        if self.about_s is None:
            return bound
        loaded = f" ({100 * self.about_load_s / self.about_s:.0f} % of it under load)" if self.about_load_s else ""
        return f"about {_hours(self.about_s)} accelerator-hours {self.source}{loaded}, {bound}"

    @property
    def source(self) -> str:
        """What the hours are from."""
        return "by past runs" if self.is_past else "by an estimate"


class StageLeft(Strict):
    """What is left of a stage if the winners stay."""

    title: str
    starts: int
    about_s: float | None
    is_known: bool
    """Whether its plan is certain."""


class EngineLeft(Left):
    """What is left for one engine of the study, at its version."""

    engine: str

    def line(self) -> str:
        """One line for a terminal."""
        if not self.most:
            return f"{self.engine}: nothing left"
        if self.about == self.most:
            return f"{self.engine}: {_runs(self.about, self.about_starts)} left, {self.hours()}"
        bound = f"at most {_runs(self.most, self.most_starts)}"
        return (
            f"{self.engine}: {_runs(self.about, self.about_starts)} left if the winners stay, {bound}; {self.hours()}"
        )


class Forecast(Left):
    """What is left of a study. `known` of the `most` runs are certain; the others depend on winners not yet known."""

    study: str
    measured: int
    known: int
    known_jobs: int
    """Jobs that measure these: what a dry-run lists of `measure`."""
    engines: list[EngineLeft]
    stages: list[StageLeft]
    power: str
    """What its proof can find, with starts like those of past studies."""
    split: str
    """What its hours go to; empty if they are not known."""
    search: str | None
    """How its strategy spreads the runs, if the study's stages do not show it."""
    next_stage: list[str]
    """Title of the first stage with runs left, and the serving commands of its first candidates with runs left."""

    def lines(self) -> list[str]:
        """Lines for a terminal: what is left in total and per engine, and what comes next."""
        engines = [engine.line() for engine in self.engines] if self.most else []
        search = list(filter(None, [self.split, self.power, self.search])) if self.most else []
        certain = [self._certain()] if self.most else []
        return [self.line(), *(f"  {line}" for line in [*engines, *certain, *search, *self.next_stage])]

    def table(self) -> list[str]:
        """Lines for a terminal: each stage with its server starts and accelerator-hours if the winners stay."""
        left = [stage for stage in self.stages if stage.starts]
        if not left:
            return [self.line()]
        hours = "" if self.about_s is None else f", about {_hours(self.about_s)} accelerator-hours {self.source}"
        starts = "1 server start" if self.about_starts == 1 else f"{self.about_starts} server starts"
        head = f"{self.study}: {starts} left if the winners stay ({self.measured} runs measured){hours}"
        groups = [list(group) for _, group in groupby(left, lambda stage: (_numberless(stage.title), stage.is_known))]
        titles = [_title([stage.title for stage in group]) for group in groups]
        width = max(map(len, titles))
        rows = [f"  {'stage':<{width}}  starts   hours"]
        for title, group in zip(titles, groups, strict=True):
            seconds = [stage.about_s for stage in group if stage.about_s is not None]
            hours = "?" if len(seconds) < len(group) else _hours(sum(seconds))
            count = sum(stage.starts for stage in group)
            rows.append(f"  {title:<{width}}  {count:>6}  {hours:>6}{'' if group[0].is_known else '  *'}")
        note = ["  * as far as it can be told now: what earlier stages find decides"] if not left[-1].is_known else []
        return [head, *rows, *note, *(f"  {line}" for line in filter(None, [self.split, self.power, *self.next_stage]))]

    def _certain(self) -> str:
        """What a dry run lists of `measure`."""
        if not self.known:
            return "certain by now: nothing, since a stage that is measured is decided again"
        jobs = f"{self.known_jobs} job{'' if self.known_jobs == 1 else 's'}"
        return f"certain by now: {_runs(self.known)} in {jobs} (`measure`)"

    def line(self) -> str:
        """One line for a terminal."""
        if not self.most:
            return f"{self.study}: nothing left to measure ({_runs(self.measured)} measured)"
        bound = "at most " if self.most > self.known else ""
        left = f"{bound}{_runs(self.most, self.most_starts)} left to measure"
        return f"{self.study}: {left} ({self.measured} measured), {self.hours()}"


def _numberless(title: str) -> str:
    return re.sub(r" \d+:", ":", title)


def _title(titles: Sequence[str]) -> str:
    """One title for stages that differ in their number only: `Refinement 1 to 15: …`."""
    if len(titles) == 1:
        return titles[0]
    last = re.search(r" (\d+):", titles[-1])
    return titles[0] if last is None else re.sub(r" (\d+):", rf" \1 to {last[1]}:", titles[0], count=1)


Visit = Sequence[RunSpec]
"""The runs that one server start serves."""


@dataclass
class _Tally:
    """What is left of one engine: certain visits, those planned if the winners stay, and the most that others add."""

    known: list[Visit] = field(default_factory=list)
    about: list[Visit] = field(default_factory=list)
    possible: list[int] = field(default_factory=list)
    """Runs of each visit."""


def forecast(
    project: Project,
    results: Path,
    is_complete: Callable[[str], bool] | None = None,
    steps: Iterable[Step] | None = None,
    *,
    use_imported: bool = True,
) -> Forecast:
    """Counts what is left: exactly for stages whose incumbent is decided, as bound and estimate for the others.

    `is_complete` says of a run whether it was measured; by default, whether its `status.json` is there. `steps`
    are those of `follow`, if they are known already. Without `use_imported`, times are those of runs measured here.
    """
    is_complete = is_complete or (lambda run_id: (results / "runs" / run_id / "status.json").exists())
    tallies = {alias: _Tally() for alias in project.study.engines}
    measured: set[str] = set()
    planned: set[str] = set()
    possible: list[int] = []
    next_stage: list[str] = []
    leaders: set[str] = set()
    stages: list[tuple[Step, list[Visit]]] = []
    for step in follow(project, results) if steps is None else steps:
        left = {run_id for run_id in step.plan.run_ids() if not is_complete(run_id)}
        stages.append((step, []))
        for alias, visit in _new_visits(step.plan, left - planned):
            stages[-1][1].append(visit)
            tallies[alias].about.append(visit)
            if step.is_known:
                tallies[alias].known.append(visit)
        planned |= left
        if step.is_known:
            leaders |= _leaders(step.plan, left)
            measured |= set(step.plan.run_ids()) - left
            if left and not next_stage:
                next_stage = _described(step.plan, left)
        else:
            possible += _count_possible(step, tallies)
    everything = _Tally(
        known=[visit for tally in tallies.values() for visit in tally.known],
        about=[visit for tally in tallies.values() for visit in tally.about],
        possible=possible,
    )
    costs = _Costs(PastTimes(results / "runs", use_imported=use_imported))
    return Forecast(
        study=project.study.study,
        measured=len(measured),
        known=_count(everything.known),
        known_jobs=len(leaders),
        **_left(project, everything, costs),
        engines=[
            EngineLeft(engine=f"{alias} {project.study.engines[alias].version}", **_left(project, tally, costs))
            for alias, tally in tallies.items()
        ],
        stages=[
            StageLeft(
                title=step.plan.title,
                starts=len(visits),
                about_s=_sum([time and time.accelerator_s for time in map(costs.of, visits)]),
                is_known=step.is_known,
            )
            for step, visits in stages
        ],
        power=power_text(project.study, past_noise(project.study, results)) if everything.about else "",
        split=_split(project, everything.about, costs),
        search=strategy_of(project.study).summary(project.study),
        next_stage=next_stage,
    )


def _leaders(plan: Plan, left: Set[str]) -> set[str]:
    """The last of the runs that are left of each job: jobs of several plans that end with one run are one job."""
    jobs = ([run.run_id for visit in job for run in visit if run.run_id in left] for job in plan.jobs())
    return {runs[-1] for runs in jobs if runs}


def _new_visits(plan: Plan, left: Set[str]) -> Iterable[tuple[str, Visit]]:
    """Engine (the study's name) of each visit of a plan with runs left, and these runs."""
    engine_of = {run.run_id: each.configuration.engine for each in plan.candidates for run in each.measured_runs}
    for job in plan.jobs():
        for visit in job:
            if runs := [run for run in visit if run.run_id in left]:
                yield engine_of[runs[0].run_id], [run.spec for run in runs]


def _count_possible(step: Step, tallies: dict[str, _Tally]) -> list[int]:
    """Runs of each visit that a stage may add; an engine that a visit may have counts it too."""
    for visit in step.possible:
        for alias in visit.engines or step.engines:
            tallies[alias].possible.append(visit.runs)
    return [visit.runs for visit in step.possible]


class _Costs:
    """The time of a visit: as past ones took, or as expected."""

    def __init__(self, past: PastTimes) -> None:
        self.past = past

    def of(self, visit: Visit) -> VisitTime | None:
        """None if there is no past one, and the size of its model is not known."""
        if found := self.past.of_visit(visit):
            return found
        expected, count = expected_time(visit), visit[0].hardware.count
        if expected is None:
            return None
        return VisitTime(*(count * each for each in (expected.seconds, expected.load_s, expected.start_s)))


def _split(project: Project, visits: Sequence[Visit], costs: _Costs) -> str:
    """What the accelerator time of these visits goes to, see `split_text`; empty if unknown."""
    times = [costs.of(visit) for visit in visits]
    known = [time for time in times if time is not None]
    total = sum(time.accelerator_s for time in known)
    if len(known) < len(times) or not total:
        return ""
    name = project.study.objective.on
    on, protocol = project.workload_spec(name), project.study.protocol_of(name)
    deciding = [[spec for spec in visit if (spec.workload, spec.protocol) == (on, protocol)] for visit in visits]
    decides = sum(time.load_accelerator_s for each in deciding if each and (time := costs.of(each)))
    loads, start = sum(time.load_accelerator_s for time in known), sum(time.start_accelerator_s for time in known)
    return split_text({"deciding load": decides, "other loads": loads - decides, "start-up": start}, total)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _left(project: Project, tally: _Tally, costs: _Costs) -> dict[str, Any]:
    """The fields of `Left`."""
    protocol, most_accelerators = project.study.protocol, max(accelerator_counts(project.study))
    rounds = max(MOST_STEPS if each.capacity else protocol.rounds for each in project.study.workloads.values())
    a_run_s = longest_s(protocol, rounds)
    known = [spec for visit in tally.known for spec in visit]
    times = [costs.of(visit) for visit in tally.about]
    return {
        "most": len(known) + sum(tally.possible),
        "most_starts": len(tally.known) + len(tally.possible),
        "most_s": (sum(spec.hardware.count for spec in known) + sum(tally.possible) * most_accelerators) * a_run_s,
        "about": _count(tally.about),
        "about_starts": len(tally.about),
        "about_s": _sum([time and time.accelerator_s for time in times]),
        "about_load_s": _sum([time and time.load_accelerator_s for time in times]),
        "is_past": all(costs.past.of_visit(visit) for visit in tally.about),
    }


def _count(visits: Iterable[Visit]) -> int:
    return sum(len(visit) for visit in visits)


def _described(plan: Plan, unmeasured: Set[str]) -> list[str]:
    """Lines for a stage: its title, and the first candidates with runs left."""
    left = [
        candidate for candidate in plan.candidates if any(run.run_id in unmeasured for run in candidate.measured_runs)
    ]
    shown = [f"  {candidate.candidate}: {candidate.command}" for candidate in left[:_MOST_SHOWN]]
    more = [f"  … and {len(left) - _MOST_SHOWN} more"] if len(left) > _MOST_SHOWN else []
    return [f"next: {plan.title}", *shown, *more]


def _runs(count: int | None, starts: int | None = None) -> str:
    """`3 runs`, `3 runs on 2 server starts`."""
    runs = f"{count} run{'' if count == 1 else 's'}"
    return runs if starts is None else f"{runs} on {starts} server start{'' if starts == 1 else 's'}"


def _hours(seconds: float) -> str:
    """Hours with one decimal, or with one significant digit below 0.1."""
    hours = seconds / 3600
    return f"{hours:.1f}" if hours >= 0.1 or not hours else f"{hours:.1g}"
