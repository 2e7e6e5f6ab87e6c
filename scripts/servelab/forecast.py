"""What is left of a study, engine by engine: how many runs, and the accelerator time they take.

Two figures, since winners still to be found decide what is planned next. *At most*: whoever wins, every stage applies,
and every round runs into the time limits of its start, its warm-up and its load. *About*: the winners stay as they are
on disk, or the incumbents where there are none, and a run takes what past runs like it took.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servelab.past_runs import PastTimes
from servelab.plan import Plan, accelerator_counts
from servelab.project import Project
from servelab.run_time import longest_s
from servelab.search import strategy_of
from servelab.search.course import follow
from servelab.spec import RunSpec, Strict
from servelab.study import COMPARISON

_MOST_SHOWN = 20
"""Candidates of the next stage that are listed; nobody reads a thousand."""


class Left(Strict):
    """Runs left and the accelerator-seconds they take."""

    most: int
    most_s: float
    about: int | None
    """None where nothing was ever measured here."""
    about_s: float | None
    """None where no past run is like one of them."""

    def hours(self) -> str:
        """`about 0.2 accelerator-hours by past runs, at most 3.1 accelerator-hours`."""
        bound = f"at most {_hours(self.most_s)} accelerator-hours"
        if self.about_s is None:
            return bound
        return f"about {_hours(self.about_s)} accelerator-hours by past runs, {bound}"


class EngineLeft(Left):
    """The same for one engine of the study at its version."""

    engine: str

    def line(self) -> str:
        """One line for a terminal."""
        if not self.most:
            return f"{self.engine}: nothing left"
        if self.about is None:
            return f"{self.engine}: at most {_runs(self.most)} left, {self.hours()}"
        if self.about == self.most:
            return f"{self.engine}: {_runs(self.most)} left, {self.hours()}"
        return f"{self.engine}: {_runs(self.about)} left if the winners stay, at most {self.most}; {self.hours()}"


class Forecast(Left):
    """What is left of a study. Of `most` runs the first `known` are planned, the rest depend on winners to be found."""

    study: str
    measured: int
    known: int
    engines: list[EngineLeft]
    search: str | None
    """How its strategy spreads the runs, where the study's stages do not say it."""
    next_stage: list[str]
    """The first stage with runs left, and the serving commands of its first candidates that have one."""

    def lines(self) -> list[str]:
        """For a terminal: what is left in all, of each engine, and what comes next."""
        engines = [engine.line() for engine in self.engines] if self.most else []
        search = [self.search] if self.search and self.most else []
        return [self.line(), *(f"  {line}" for line in [*engines, *search, *self.next_stage])]

    def line(self) -> str:
        """One line for a terminal."""
        if not self.most:
            return f"{self.study}: nothing left to measure ({_runs(self.measured)} measured)"
        bound = "at most " if self.most > self.known else ""
        return f"{self.study}: {bound}{_runs(self.most)} left to measure ({self.measured} measured), {self.hours()}"


@dataclass
class _Tally:
    """Runs left of one engine: planned for certain, planned if the winners stay, and what others may add."""

    known: dict[str, RunSpec] = field(default_factory=dict)
    about: dict[str, RunSpec] = field(default_factory=dict)
    possible: int = 0


def forecast(project: Project, results: Path) -> Forecast:
    """Follows the stages as far as their decisions are known; from there on bounds and guesses."""
    tallies = {alias: _Tally() for alias in project.study.engines}
    measured: set[str] = set()
    next_stage: list[str] = []
    possible = 0
    pairs: list[RunSpec] = []
    for step in follow(project, results):
        unmeasured = _unmeasured(step.plan, results)
        for run_id, (alias, spec) in unmeasured.items():
            tallies[alias].about[run_id] = spec
            if step.is_known:
                tallies[alias].known[run_id] = spec
        if step.is_known:
            measured |= set(step.plan.run_ids()) - unmeasured.keys()
            if unmeasured and not next_stage:
                next_stage = _described(step.plan, unmeasured.keys())
        else:
            possible += len(step.outline.new_runs)
            for engines in step.outline.new_runs:
                for alias in engines or step.engines:  # a run that inherits its engine counts for each it may be
                    tallies[alias].possible += 1
        if not step.is_decided and step.plan.stage != COMPARISON:
            pairs += [run.spec for run in step.plan.candidates[0].runs]  # may be measured again beside a candidate
    known = {run_id: spec for tally in tallies.values() for run_id, spec in tally.known.items()}
    about = {run_id: spec for tally in tallies.values() for run_id, spec in tally.about.items()}
    times = PastTimes(results / "runs") if about or possible else None
    return Forecast(
        study=project.study.study,
        measured=len(measured),
        known=len(known),
        **_left(project, known, possible, about, times, pairs),
        engines=[
            EngineLeft(
                engine=f"{alias} {project.study.engines[alias].version}",
                **_left(project, tally.known, tally.possible, tally.about, times),
            )
            for alias, tally in tallies.items()
        ],
        search=strategy_of(project.study).summary(project.study),
        next_stage=next_stage,
    )


def _left(
    project: Project,
    known: dict[str, RunSpec],
    possible: int,
    about: dict[str, RunSpec],
    times: PastTimes | None,
    pairs: Sequence[RunSpec] = (),
) -> dict[str, Any]:
    """The fields of `Left`; `pairs` are incumbents that may be measured again beside a candidate."""
    protocol, most_accelerators = project.study.protocol, max(accelerator_counts(project.study))
    most_s = longest_s(protocol, protocol.rounds.max)
    runs_a_pair = 4 * project.study.objective.interleaved_cycles / protocol.rounds.max
    runs = sum(spec.hardware.count for spec in known.values()) + possible * most_accelerators
    seconds = [(1.0, times.about_s(spec)) for spec in about.values()] if times else []
    if times and runs_a_pair:
        seconds += [(runs_a_pair, times.about_s(spec)) for spec in pairs]
    like = [share * second for share, second in seconds if second is not None]
    return {
        "most": len(known) + possible,
        "most_s": (runs + len(pairs) * runs_a_pair * most_accelerators) * most_s,
        "about": len(about) if times else None,
        "about_s": sum(like) if times and len(like) == len(seconds) else None,
    }


def _unmeasured(plan: Plan, results: Path) -> dict[str, tuple[str, RunSpec]]:
    """Engine, by the study's name, and specification of each run of a plan that was not measured."""
    return {
        run.run_id: (candidate.configuration.engine, run.spec)
        for candidate in plan.candidates
        for run in candidate.runs
        if not Path(f"{results}/runs/{run.run_id}/status.json").exists()
    }


def _described(plan: Plan, unmeasured: Set[str]) -> list[str]:
    """A stage in lines: its title, and the first candidates with runs left."""
    left = [candidate for candidate in plan.candidates if any(run.run_id in unmeasured for run in candidate.runs)]
    shown = [f"  {candidate.candidate}: {candidate.command}" for candidate in left[:_MOST_SHOWN]]
    more = [f"  … and {len(left) - _MOST_SHOWN} more"] if len(left) > _MOST_SHOWN else []
    return [f"next: {plan.title}", *shown, *more]


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _hours(seconds: float) -> str:
    """Hours to a digit behind the point, or to one digit that is not 0."""
    hours = seconds / 3600
    return f"{hours:.1f}" if hours >= 0.1 or not hours else f"{hours:.1g}"
