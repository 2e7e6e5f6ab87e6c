"""What is left of a study: how many runs, and the most accelerator time they can take."""

from __future__ import annotations

import json
from pathlib import Path

from servelab.plan import Incumbent, Plan, PlannedRun, baseline, plan_stage, winner_of
from servelab.project import Project
from servelab.spec import ProtocolSpec, Strict
from servelab.study import COMPARISON


class Forecast(Strict):
    """Runs left: `known` are planned exactly, `possible` depend on winners still to be found."""

    study: str
    measured: int
    known: int
    possible: int
    accelerator_s: float
    next_stage: list[str]
    """The first stage with runs left, and the serving command of each of its candidates that has one."""

    def lines(self) -> list[str]:
        """For a terminal: what is left in all, and what comes next."""
        return [self.line(), *(f"  {line}" for line in self.next_stage)]

    def line(self) -> str:
        """One line for a terminal."""
        left = self.known + self.possible
        if not left:
            return f"{self.study}: nothing left to measure ({self.measured} runs measured)"
        bound = "at most " if self.possible else ""
        hours = self.accelerator_s / 3600
        done = f"({self.measured} measured)"
        return f"{self.study}: {bound}{left} runs left to measure {done}, at most {hours:.1f} accelerator-hours"


def forecast(project: Project, results: Path) -> Forecast:
    """Follows the stages as far as their decisions are known, and bounds the rest.

    The bound takes every stage as applying, every round as running into its time limit, and every round on a freshly
    started server that becomes healthy at the last moment.
    """
    seen: set[str] = set()
    next_stage: list[str] = []
    left: dict[str, int] = {}
    incumbent: Incumbent | None = baseline(project)
    possible, seconds = 0, 0.0
    most = max(
        [candidate.accelerators or 1 for stage in project.study.stages for candidate in stage.candidates]
        + [baseline(project).configuration.accelerators]
    )
    for stage in project.stage_names:
        if incumbent is None:
            count = _most_runs(project, stage)
            possible += count
            seconds += count * most * _longest_s(project.study.protocol)
            continue
        plan = plan_stage(project, stage, incumbent)
        unmeasured = {run.run_id: run.spec.hardware.count for run in _runs(plan) if not _is_measured(run, results)}
        seen |= {run.run_id for run in _runs(plan)}
        if unmeasured and not next_stage:
            next_stage = _described(plan, set(unmeasured))
        left |= unmeasured
        incumbent = _winner(project, plan, results)
    seconds += sum(left.values()) * _longest_s(project.study.protocol)
    return Forecast(
        study=project.study.study,
        measured=len(seen) - len(left),
        known=len(left),
        possible=possible,
        accelerator_s=seconds,
        next_stage=next_stage,
    )


def _runs(plan: Plan) -> list[PlannedRun]:
    return [run for candidate in plan.candidates for run in candidate.runs]


def _is_measured(run: PlannedRun, results: Path) -> bool:
    return (results / "runs" / run.run_id / "status.json").exists()


def _described(plan: Plan, unmeasured: set[str]) -> list[str]:
    """A stage in lines: its title, and each candidate with runs left."""
    left = [candidate for candidate in plan.candidates if unmeasured & {run.run_id for run in candidate.runs}]
    return [f"next: {plan.title}", *(f"  {candidate.candidate}: {candidate.command}" for candidate in left)]


def _most_runs(project: Project, stage: str) -> int:
    """Runs a stage can add at most when its incumbent is not known yet."""
    if stage == COMPARISON:  # the baseline's and the winner's runs of the deciding workload are already counted
        return 2 * (len(project.study.workloads) - 1)
    return len(next(entry for entry in project.study.stages if entry.name == stage).candidates)


def _longest_s(protocol: ProtocolSpec) -> float:
    return protocol.rounds.max * (protocol.startup_timeout_s + protocol.round_timeout_s)


def _winner(project: Project, plan: Plan, results: Path) -> Incumbent | None:
    """The winner of a plan, if the decision on disk was made on exactly these runs."""
    file = results / "studies" / plan.study / "stages" / plan.stage / "decision.json"
    try:
        decision = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    planned = [(candidate.candidate, [run.run_id for run in candidate.runs][:1]) for candidate in plan.candidates]
    decided = [(entry["candidate"], [entry["run_id"]] if entry["run_id"] else []) for entry in decision["candidates"]]
    if planned != decided:
        return None
    return winner_of(plan, decision["winner"]["candidate"])
