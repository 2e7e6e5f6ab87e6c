"""Progress of a study, read from its files: each stage's runs done, failed and left, its best candidate, time left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean

from servelab.core.errors import ServelabError
from servelab.measure.run_files import RunStatus
from servelab.measure.run_folder import Attempt, attempts, read_status
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import per_basis
from servelab.results.past_runs import parts_of_runs
from servelab.search.decision import Decision
from servelab.search.strategies import stage_names
from servelab.study.plan import Plan
from servelab.study.study import PROOF_STAGES, Study


@dataclass(frozen=True)
class Best:
    """The best candidate of a stage of the search so far, or its winner if it is decided."""

    candidate: str
    value: float
    """Mean of the objective over its server starts, on the study's basis."""
    change_percent: float | None
    """Against the study's baseline; None if the baseline has no figure, or if this is the baseline."""

    def text(self, metric: str) -> str:
        """`batch, total_tokens_per_s 123.4, +12.3 % against the baseline`."""
        text = f"{self.candidate}, {metric} {self.value:.1f}"
        return text if self.change_percent is None else f"{text}, {self.change_percent:+.1f} % against the baseline"


@dataclass(frozen=True)
class StageProgress:
    """Progress of one stage."""

    study: str
    stage: str
    metric: str
    runs: int | None
    """None if the plan waits for earlier stages."""
    done: int
    failed: int
    """Failed runs among those that are done."""
    running: int
    starts_left: int
    """Server starts that the runs left take."""
    best: Best | None
    """None for the proof, which has its own verdict."""
    is_decided: bool
    left_s: float | None
    """Seconds until the last run ends, with as many runs at once as now; None if no run is done yet."""
    left_accelerator_h: float | None = None
    """Accelerator-hours that the runs left take."""
    expected: str | None = None
    """The gains that a proof can find."""

    def line(self) -> str:
        """One line for a terminal or a log."""
        name = f"{self.study}, {self.stage}: "
        if self.runs is None:
            return f"{name}waits for earlier stages"
        left = self.runs - self.done
        parts = [f"{self.done} run{'' if self.done == 1 else 's'} done ({self.failed} failed), {left} left"]
        if left:
            parts[0] += f" on {self.starts_left} server start{'' if self.starts_left == 1 else 's'}"
        if self.running:
            parts[0] += f" ({self.running} running)"
        if self.best:
            parts.append(f"{'winner' if self.is_decided else 'best so far'}: {self.best.text(self.metric)}")
        if left:
            parts += [self._time_left, *([self.expected] if self.expected else [])]
        return name + "; ".join(parts)

    @property
    def _time_left(self) -> str:
        if self.left_s is None or self.left_accelerator_h is None:
            return "no estimate yet"
        return f"about {_duration(self.left_s)} and {self.left_accelerator_h:.2g} accelerator-hours left"


@dataclass(frozen=True)
class _Planned:
    """A run of a stage's plan."""

    run_id: str
    candidate: str
    workload: str
    accelerators: int
    visit: int
    """Number of the server start that serves it, in its plan."""


class StudyProgress:
    """Progress of one study. The status of a measured run is read once, because it does not change."""

    def __init__(self, study: Study, results: Path) -> None:
        """`results` is the results folder."""
        self._study, self._results = study, results
        self._folder = results / "studies" / study.study / "stages"
        self._statuses: dict[str, RunStatus] = {}
        self._plans: dict[str, tuple[int, list[_Planned]]] = {}
        self._expected: dict[str, str | None] = {}
        self.stages = stage_names(study)
        self._metric, self._basis = study.objective.measured_metric_and_basis

    def stage(self, name: str) -> StageProgress:
        """One of `stages`."""
        planned = self._planned(name)
        runs = {run.run_id: run for run in planned or []}
        done = {run_id: status for run_id in runs if (status := self._status(run_id))}
        working = {each.id for each in attempts(self._results / "runs") if each.id in runs and each.is_alive}
        running = len(working - done.keys())
        left = [run for run_id, run in runs.items() if run_id not in done]
        starts_left = len({run.visit for run in left})
        winner = self._winner(name)
        spent_s = _spent_s(runs, done, len(left), starts_left)
        accelerators = fmean(run.accelerators for run in left) if left else 0.0
        return StageProgress(
            study=self._study.study,
            stage=name,
            metric=self._metric,
            runs=None if planned is None else len(runs),
            done=len(done),
            failed=sum(not status.is_ok for status in done.values()),
            running=running,
            starts_left=starts_left,
            best=None if name in PROOF_STAGES else self._best(planned or [], winner),
            is_decided=winner is not None,
            expected=self._expected.get(name),
            left_s=None if spent_s is None else spent_s / max(1, running),
            left_accelerator_h=None if spent_s is None else spent_s * accelerators / 3600,
        )

    def titles(self) -> dict[str, str]:
        """Stage and candidate of each planned run."""
        return {run.run_id: f"{stage}, {run.candidate}" for stage in self.stages for run in self._planned(stage) or []}

    def running(self) -> Iterator[tuple[Attempt, str]]:
        """Attempts running now for this study, each with the name of what it measures."""
        known = self.titles()
        for attempt in attempts(self._results / "runs"):
            if attempt.id in known and attempt.is_alive:
                yield attempt, known[attempt.id]

    def stages_of(self, run_ids: Iterable[str]) -> list[str]:
        """Names of the stages that any of these runs belongs to."""
        asked = set(run_ids)
        return [stage for stage in self.stages if any(run.run_id in asked for run in self._planned(stage) or [])]

    def _planned(self, stage: str) -> list[_Planned] | None:
        """The runs of a stage's plan; None if there is no plan."""
        file = self._folder / stage / "plan.json"
        try:
            stamp = file.stat().st_mtime_ns
            if stage not in self._plans or self._plans[stage][0] != stamp:
                plan = Plan.read(file)
                self._plans[stage], self._expected[stage] = (stamp, list(_planned(plan))), plan.expected
        except (FileNotFoundError, ServelabError):  # a plan of another version is made again
            return None
        return self._plans[stage][1]

    def _status(self, run_id: str) -> RunStatus | None:
        if run_id not in self._statuses and (status := read_status(self._results / "runs" / run_id, RunStatus)):
            self._statuses[run_id] = status
        return self._statuses.get(run_id)

    def _winner(self, stage: str) -> str | None:
        """The decided winner, if the decision was made on the runs of the plan."""
        file = self._folder / stage / "decision.json"
        if not file.exists():
            return None
        decision = Decision.read(file)
        first_runs = {run.candidate: run.run_id for run in reversed(self._planned(stage) or [])}
        decided = {entry.candidate: entry.run_id for entry in decision.candidates if entry.run_id}
        return decision.winner.candidate if decided == first_runs else None

    def _best(self, planned: list[_Planned], winner: str | None) -> Best | None:
        found: dict[str, list[float]] = {}
        for run in planned:
            if winner in (None, run.candidate) and (value := self._value(run)) is not None:
                found.setdefault(run.candidate, []).append(value)
        if not found:
            return None
        sign = 1 if METRICS.get(self._metric).higher_is_better else -1
        name = max(found, key=lambda candidate: sign * fmean(found[candidate]))
        return Best(name, fmean(found[name]), self._change(name, fmean(found[name]), planned))

    def _change(self, candidate: str, value: float, planned: list[_Planned]) -> float | None:
        """Change in percent against the baseline, which is the first candidate of the first stage."""
        side = self._planned(self.stages[0]) or planned
        values = [
            found for run in side if run.candidate == side[0].candidate and (found := self._value(run)) is not None
        ]
        is_itself = candidate == planned[0].candidate and planned[0].run_id == side[0].run_id
        if is_itself or not values or fmean(values) <= 0:
            return None
        return 100 * (value / fmean(values) - 1)

    def _value(self, run: _Planned) -> float | None:
        """The objective's mean over the rounds on the study's basis.

        None if the run was disturbed, or if it or too many of its requests failed.
        """
        status = self._status(run.run_id)
        if status is None or not status.is_ok or status.disturbed:
            return None
        if status.success_rate < self._study.objective.min_success_rate:
            return None
        factor, _ = per_basis(self._basis, run.accelerators, self._study.hardware.per_node)
        return factor * fmean(status.objective_rounds) if status.objective_rounds else None


def _planned(plan: Plan) -> Iterator[_Planned]:
    visit_of = {run.run_id: number for number, visit in enumerate(chain.from_iterable(plan.jobs())) for run in visit}
    for candidate in plan.candidates:
        for run in candidate.measured_runs:
            accelerators = candidate.configuration.accelerators
            yield _Planned(run.run_id, candidate.candidate, run.workload, accelerators, visit_of[run.run_id])


def _spent_s(runs: Mapping[str, _Planned], done: Mapping[str, RunStatus], left: int, starts_left: int) -> float | None:
    """Seconds that so many runs and server starts take one after the other, by the mean of those that are done.

    None if none is.
    """
    parts = parts_of_runs({run_id: (status, runs[run_id].accelerators) for run_id, status in done.items()}).values()
    starts = [each.start_s for each in parts if each.start_s is not None]
    if not parts:
        return None
    return starts_left * (fmean(starts) if starts else 0.0) + left * fmean(each.busy_s for each in parts)


def _duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
