"""How far a study is, from its files alone: what of each stage is done, left and failed, its best, and when it ends."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from servelab.metrics import METRICS
from servelab.objective import per_basis
from servelab.run_folder import Attempt, attempts, read_status
from servelab.search import strategy_of
from servelab.statistics import Interval, ratio_ci95
from servelab.study import COMPARISON, Study

_SAY_EVERY_S = 10.0
"""One line a stage in so long, and one for its last run."""


@dataclass(frozen=True)
class Best:
    """The best candidate of a stage so far, or its winner once that is decided."""

    candidate: str
    value: float
    """The objective on the study's basis, the mean over rounds."""
    change: Interval | None
    """Percent, against the study's baseline; None where there is no figure of that, or where this is it."""

    def text(self, metric: str) -> str:
        """`batch, total_tokens_per_s 123.4, +12.3 % (+10.1 to +14.6) against the baseline`."""
        text = f"{self.candidate}, {metric} {self.value:.1f}"
        if self.change is None:
            return text
        change, low, high = self.change
        interval = f" ({low:+.1f} to {high:+.1f})" if low is not None and high is not None else ""
        return f"{text}, {change:+.1f} %{interval} against the baseline"


@dataclass(frozen=True)
class StageProgress:
    """One stage."""

    study: str
    stage: str
    metric: str
    runs: int | None
    """None where the plan waits for the stages before."""
    most: int
    """Runs that it can have at most."""
    done: int
    failed: int
    """Of those that are done."""
    running: int
    best: Best | None
    is_decided: bool
    left_s: float | None
    """Until the last run has ended, with as many at once as now; None where nothing says how long a run takes."""

    def line(self) -> str:
        """One line for a terminal or a log."""
        name = f"{self.study}, {self.stage}: "
        if self.runs is None:
            return f"{name}waits for the stages before, at most {self.most} runs"
        left = self.runs - self.done
        parts = [f"{self.done} done ({self.failed} failed), {left} left"]
        if self.running:
            parts[0] += f" ({self.running} running)"
        if self.best:
            parts.append(f"{'winner' if self.is_decided else 'best so far'}: {self.best.text(self.metric)}")
        if left:
            parts.append("no estimate yet" if self.left_s is None else f"about {_duration(self.left_s)} left")
        return name + "; ".join(parts)


@dataclass(frozen=True)
class _Planned:
    """A run of a stage's plan."""

    run_id: str
    candidate: str
    workload: str
    accelerators: int


class StudyProgress:
    """Progress of one study. What a measured run's file says is read once, for it does not change."""

    def __init__(self, study: Study, results: Path) -> None:
        """`results` is the results folder."""
        self._study, self._results = study, results
        self._folder = results / "studies" / study.study / "stages"
        self._statuses: dict[str, dict[str, Any]] = {}
        self._plans: dict[str, tuple[int, list[_Planned]]] = {}
        outlines = strategy_of(study).outlines(study)
        self._most_runs = {each.name: each.most_runs for each in outlines} | {COMPARISON: 2 * len(study.workloads)}
        self.stages = list(self._most_runs)
        self._metric, self._basis = study.objective.measured_metric_and_basis

    def stage(self, name: str) -> StageProgress:
        """One of `stages`."""
        planned = self._planned(name)
        runs = {run.run_id: run for run in planned or []}
        done = {run_id: status for run_id in runs if (status := self._status(run_id))}
        working = {each.id for each in attempts(self._results / "runs") if each.id in runs and each.is_alive}
        running = len(working - done.keys())
        times = [status["accelerator_s"] / runs[run_id].accelerators for run_id, status in done.items()]
        winner = self._winner(name, runs.keys())
        return StageProgress(
            study=self._study.study,
            stage=name,
            metric=self._metric,
            runs=None if planned is None else len(runs),
            most=self._most_runs[name],
            done=len(done),
            failed=sum(status["outcome"] != "ok" for status in done.values()),
            running=running,
            best=self._best(planned or [], winner),
            is_decided=winner is not None,
            left_s=fmean(times) * (len(runs) - len(done)) / max(1, running) if times else None,
        )

    def running(self) -> Iterator[tuple[Attempt, str]]:
        """What is being measured now for this study, and what that is."""
        known = {run.run_id: f"{stage}, {run.candidate}" for stage in self.stages for run in self._planned(stage) or []}
        pairs = {self._pair(stage): f"{stage}, its leader again beside the incumbent" for stage in self.stages}
        for folder, names in (("runs", known), ("pairs", pairs)):
            for attempt in attempts(self._results / folder):
                if attempt.id in names and attempt.is_alive:
                    yield attempt, names[attempt.id]

    def stages_of(self, run_id: str) -> list[str]:
        """Names of the stages that a run belongs to."""
        return [stage for stage in self.stages if any(run.run_id == run_id for run in self._planned(stage) or [])]

    def is_last(self, run_id: str, stage: str) -> bool:
        """Whether a stage is complete with this run, as far as its other runs were looked at before."""
        self._status(run_id)
        return all(run.run_id in self._statuses for run in self._planned(stage) or [])

    def _planned(self, stage: str) -> list[_Planned] | None:
        """The runs of a stage's plan; None without a plan."""
        file = self._folder / stage / "plan.json"
        try:
            stamp = file.stat().st_mtime_ns
            if stage not in self._plans or self._plans[stage][0] != stamp:
                self._plans[stage] = (stamp, list(_planned(_read_json(file))))
        except FileNotFoundError:
            return None
        return self._plans[stage][1]

    def _status(self, run_id: str) -> dict[str, Any] | None:
        if run_id not in self._statuses and (status := read_status(self._results / "runs" / run_id)):
            self._statuses[run_id] = status
        return self._statuses.get(run_id)

    def _winner(self, stage: str, runs: Iterable[str]) -> str | None:
        """The decided winner, if the decision was made on these runs."""
        try:
            decision = _read_json(self._folder / stage / "decision.json")
        except FileNotFoundError:
            return None
        decided = {entry["run_id"] for entry in decision["candidates"]} - {None}
        return str(decision["winner"]["candidate"]) if decided == set(runs) else None

    def _pair(self, stage: str) -> str | None:
        """The pair that is measured again for a stage."""
        try:
            pair: str | None = _read_json(self._folder / stage / "pair.json")["pair_id"]
        except FileNotFoundError:
            return None
        return pair

    def _best(self, planned: list[_Planned], winner: str | None) -> Best | None:
        found = {}
        for run in planned:
            decides = run.workload == self._study.objective.on or run.workload not in self._study.workloads
            if decides and winner in (None, run.candidate) and (values := self._values(run)):
                found[run.candidate] = values
        if not found:
            return None
        sign = 1 if METRICS.get(self._metric).higher_is_better else -1
        name = max(found, key=lambda candidate: sign * fmean(found[candidate]))
        return Best(name, fmean(found[name]), self._change(found[name], planned[0]))

    def _change(self, values: list[float], incumbent: _Planned) -> Interval | None:
        """Against the baseline, the first candidate of the first stage; under a part of the load every incumbent is."""
        first = (self._planned(self.stages[0]) or [incumbent])[0]
        baseline = self._values(first if first.workload == incumbent.workload else incumbent)
        if not baseline or baseline == values or fmean(baseline) <= 0:
            return None
        change, low, high = ratio_ci95(baseline, values)
        bounded = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
        return Interval(change, low, high) if bounded else Interval(change, None, None)

    def _values(self, run: _Planned) -> list[float]:
        """The objective in each round on the study's basis; none for a run that failed, or failed too many requests."""
        status = self._status(run.run_id)
        if status is None or status["outcome"] != "ok":
            return []
        if status["success_rate"] < self._study.objective.min_success_rate:
            return []
        factor, _ = per_basis(self._basis, run.accelerators, self._study.hardware.per_node)
        return [value * factor for value in status.get("objective_rounds", [])]


class ProgressLines:
    """The lines that a running workflow says: one for a stage whenever one of its runs has ended, but not too often."""

    def __init__(self, studies: list[StudyProgress]) -> None:
        self._studies = studies
        self._said_at: dict[tuple[int, str], float] = {}

    def ended(self, run_id: str) -> list[str]:
        """What to say now that a run has ended."""
        lines, now = [], time.monotonic()
        for number, study in enumerate(self._studies):
            for stage in study.stages_of(run_id):
                is_last = study.is_last(run_id, stage)
                if is_last or now - self._said_at.get((number, stage), -math.inf) >= _SAY_EVERY_S:
                    self._said_at[number, stage] = now
                    lines.append(study.stage(stage).line())
        return lines


def _planned(plan: dict[str, Any]) -> Iterator[_Planned]:
    for candidate in plan["candidates"]:
        for run in candidate["runs"]:
            accelerators = candidate["configuration"]["accelerators"]
            yield _Planned(run["run_id"], candidate["candidate"], run["workload"], accelerators)


def _duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _read_json(file: Path) -> Any:
    return json.loads(file.read_bytes())
