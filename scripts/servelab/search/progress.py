"""Progress of a study, read from its files: each stage's runs done, failed and left, its best candidate, time left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from servelab.core.errors import ServelabError
from servelab.core.figure_text import duration
from servelab.measure.run_files import RunStatus
from servelab.measure.run_folder import Attempt, attempts, read_status
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import per_basis
from servelab.results.past_runs import parts_of_runs
from servelab.search.decision import Decision
from servelab.search.strategies import stage_names
from servelab.study.plan import Plan, PlannedCandidate
from servelab.study.study import AFTER_SEARCH, Study


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
            about = "no estimate yet"
            if self.left_s is not None and self.left_accelerator_h is not None:
                about = f"about {duration(self.left_s)} and {self.left_accelerator_h:.2g} accelerator-hours left"
            parts += [about, *([self.expected] if self.expected else [])]
        return name + "; ".join(parts)


class StudyProgress:
    """Progress of one study. The status of a measured run is read once, because it does not change."""

    def __init__(self, study: Study, results: Path) -> None:
        """`results` is the results folder."""
        self._study, self._results = study, results
        self._folder = results / "studies" / study.study / "stages"
        self._statuses: dict[str, RunStatus] = {}
        self._plans: dict[str, tuple[int, Plan]] = {}
        self.stages = stage_names(study)
        self._metric, self._basis = study.objective.measured_metric_and_basis

    def stage(self, name: str) -> StageProgress:
        """One of `stages`."""
        plan = self._plan(name)
        runs = _runs_of(plan) if plan else {}
        done = {run_id: status for run_id in runs if (status := self._status(run_id))}
        working = {each.id for each in attempts(self._results / "runs") if each.id in runs and each.is_alive}
        running = len(working - done.keys())
        left = [candidate.configuration.accelerators for run_id, candidate in runs.items() if run_id not in done]
        visits = [visit for job in plan.jobs() for visit in job] if plan else []
        starts_left = sum(any(run.run_id not in done for run in visit) for visit in visits)
        winner = self._winner(name, plan) if plan else None
        spent_s = _spent_s(runs, done, len(left), starts_left)
        return StageProgress(
            study=self._study.study,
            stage=name,
            metric=self._metric,
            runs=len(runs) if plan else None,
            done=len(done),
            failed=sum(not status.is_ok for status in done.values()),
            running=running,
            starts_left=starts_left,
            best=self._best(plan, winner) if plan and name not in AFTER_SEARCH else None,
            is_decided=winner is not None,
            expected=plan.expected if plan else None,
            left_s=None if spent_s is None else spent_s / max(1, running),
            left_accelerator_h=None if spent_s is None else spent_s * (fmean(left) if left else 0.0) / 3600,
        )

    def titles(self) -> dict[str, str]:
        """Stage and candidate of each planned run."""
        plans = [plan for stage in self.stages if (plan := self._plan(stage))]
        return {id: f"{plan.stage}, {each.candidate}" for plan in plans for id, each in _runs_of(plan).items()}

    def running(self) -> Iterator[tuple[Attempt, str]]:
        """Attempts running now for this study, each with the name of what it measures."""
        known = self.titles()
        for attempt in attempts(self._results / "runs"):
            if attempt.id in known and attempt.is_alive:
                yield attempt, known[attempt.id]

    def stages_of(self, run_ids: Iterable[str]) -> list[str]:
        """Names of the stages that any of these runs belongs to."""
        asked = set(run_ids)
        return [stage for stage in self.stages if (plan := self._plan(stage)) and asked & {*plan.run_ids()}]

    def _plan(self, stage: str) -> Plan | None:
        """The plan of a stage; None if there is none."""
        file = self._folder / stage / "plan.json"
        try:
            stamp = file.stat().st_mtime_ns
            if stage not in self._plans or self._plans[stage][0] != stamp:
                self._plans[stage] = stamp, Plan.read(file)
        except (FileNotFoundError, ServelabError):  # a plan of another version is made again
            return None
        return self._plans[stage][1]

    def _status(self, run_id: str) -> RunStatus | None:
        if run_id not in self._statuses and (status := read_status(self._results / "runs" / run_id, RunStatus)):
            self._statuses[run_id] = status
        return self._statuses.get(run_id)

    def _winner(self, stage: str, plan: Plan) -> str | None:
        """The decided winner, if the decision was made on the runs of the plan."""
        file = self._folder / stage / "decision.json"
        if not file.exists():
            return None
        decision = Decision.read(file)
        decided = {entry.candidate: entry.run_id for entry in decision.candidates if entry.run_id}
        planned = {each.candidate: each.runs[0].run_id for each in plan.candidates if each.runs}
        return decision.winner.candidate if decided == planned else None

    def _best(self, plan: Plan, winner: str | None) -> Best | None:
        listed = [each for each in plan.candidates if winner in (None, each.candidate)]
        found = {each.candidate: value for each in listed if (value := self._value(each)) is not None}
        if not found:
            return None
        sign = 1 if METRICS.get(self._metric).higher_is_better else -1
        name = max(found, key=lambda candidate: sign * found[candidate])
        baseline = (self._plan(self.stages[0]) or plan).candidates[0]
        base, own = self._value(baseline), next(each for each in listed if each.candidate == name)
        is_itself = own.runs[:1] == baseline.runs[:1]
        change = None if is_itself or not base or base <= 0 else 100 * (found[name] / base - 1)
        return Best(name, found[name], change)

    def _value(self, candidate: PlannedCandidate) -> float | None:
        """The objective's mean over the starts of a candidate on the study's basis.

        A run does not count if it was disturbed, or if it or too many of its requests failed; None if none counts.
        """
        found = [status for run in candidate.runs if (status := self._status(run.run_id)) and status.is_ok]
        least = self._study.objective.min_success_rate
        sound = [each for each in found if not each.disturbed and each.success_rate >= least and each.objective_rounds]
        count, per_node = candidate.configuration.accelerators, self._study.hardware.per_node
        factor, _ = per_basis(self._basis, count, per_node)
        return factor * fmean(fmean(each.objective_rounds) for each in sound) if sound else None


def _runs_of(plan: Plan) -> dict[str, PlannedCandidate]:
    return {run.run_id: candidate for candidate in plan.candidates for run in candidate.measured_runs}


def _spent_s(
    runs: Mapping[str, PlannedCandidate], done: Mapping[str, RunStatus], left: int, starts_left: int
) -> float | None:
    """Seconds that so many runs and server starts take one after the other, by the mean of those that are done.

    None if none is.
    """
    counts = {run_id: candidate.configuration.accelerators for run_id, candidate in runs.items()}
    parts = parts_of_runs({run_id: (status, counts[run_id]) for run_id, status in done.items()}).values()
    starts = [each.start_s for each in parts if each.start_s is not None]
    if not parts:
        return None
    return starts_left * (fmean(starts) if starts else 0.0) + left * fmean(each.busy_s for each in parts)
