"""Simulates a whole study, search and proof, with made-up runs: no files, no Snakemake, no server.

Used to test strategies and decisions, and to replay them on measured figures.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import UUID

import pandas as pd

from servelab.answers.comparison import CHANGES, SAME
from servelab.metrics.objective import per_basis
from servelab.metrics.statistics import Interval
from servelab.results.parse import candidate_columns
from servelab.search import strategies as search
from servelab.search.decide import NOT_RUN
from servelab.search.decision import PastStage
from servelab.search.project import load_project
from servelab.search.proof import ProofVerdict
from servelab.search.proof_plan import ProofStage, judge, past_by_second, promised_percent
from servelab.search.recommended import FrontPoint
from servelab.search.winner_map import front
from servelab.study.configuration import Configuration, Load
from servelab.study.plan import ANSWERS, Plan, PlannedCandidate, PlannedRun
from servelab.study.project import Project
from servelab.study.study import AFTER_SEARCH, Study

MOST_ATTEMPTS = 3
"""How often a disturbed run is measured."""


@dataclass(frozen=True)
class Measured:
    """Result of a made-up run."""

    rounds: Sequence[float] = ()
    """The objective in each round, for the deployment as run."""
    accelerator_s: float = 0.0
    second: float = math.nan
    """The second of two objectives (`objective.pareto`), on the study's basis."""
    failed: str | None = None
    """Why it failed: a reason from docs/reference/files.md."""
    constraints_missed: str | None = None
    slo_attainment: float | None = None
    success_rate: float = 1.0
    changes_answers: str | None = None
    """The loss in its answers beyond what the study allows, if it is asked; None if there is none."""
    disturbed: bool = False
    """Whether other processes disturbed it: it is then measured again, a bounded number of times."""

    def __post_init__(self) -> None:
        if not self.rounds and self.failed is None:
            raise ValueError("Measured needs the objective of one round at least, or why the run failed (`failed`)")


Measure = Callable[[Configuration, Load, str], Measured]
"""(configuration, load, start) → the result of measuring it.

`start` is the label of a server start, such as `search-0` or `proof-2`. It is called in the order in which the runs
would be measured on one device: once per run, and again for a disturbed one. Questions are asked on the start of a
load: what they lose is in the load's `Measured`.
"""


@dataclass(frozen=True)
class StudyResult:
    """Result of a simulated study."""

    winner: Configuration
    """The recommended configuration: the baseline, unless the proof found another one better."""
    proposed: Configuration
    """Proved: the search's choice, or the next best if that changed its answers in its first pairs."""
    proof: ProofVerdict | None
    """Verdict, promised change and published change of `proposed` with its 95 % interval; None if the search found
    nothing to prove."""
    runs: int
    """Runs measured, those of the proof included; questions of a study (`answers`) are no run, and take no time."""
    accelerator_s: float
    second: StudyResult | None = None
    """Of two objectives: the same by the second one."""
    front: Sequence[FrontPoint] = ()
    """Of two objectives: what no other configuration of the search beats by both."""

    @property
    def verdict(self) -> str:
        """Verdict of the proof (docs/search.md); `keep the baseline` if there was nothing to prove."""
        return self.proof.verdict if self.proof else "keep the baseline"

    @property
    def change(self) -> Interval | None:
        """Published change in percent with its 95 % interval; None without a proof."""
        if self.proof is None or self.proof.change_percent is None:
            return None
        return Interval(
            self.proof.change_percent, self.proof.change_ci95_low_percent, self.proof.change_ci95_high_percent
        )


class _Runs:
    """Measures each run once, and counts."""

    def __init__(self, measure: Measure, seed: int) -> None:
        self._measure, self._random = measure, random.Random(seed)  # noqa: S311 - names of jobs
        self.known: dict[str, Measured] = {}
        self.jobs: dict[str, str] = {}
        self.measured, self.accelerator_s = 0, 0.0

    def measure(self, study: Study, plan: Plan) -> None:
        configurations = {run.run_id: each.configuration for each in plan.candidates for run in each.measured_runs}
        for job in plan.jobs():
            job_id = UUID(int=self._random.getrandbits(128)).hex
            for load, run in ((visit[0], run) for visit in job for run in visit):
                if run.run_id in self.known:
                    continue
                self.jobs[run.run_id] = job_id
                if run.workload == ANSWERS:  # asked on the start of the load, which comes first and says what they lose
                    self.known[run.run_id] = replace(self.known[load.run_id], accelerator_s=0.0)
                    continue
                self.known[run.run_id] = self._measured(configurations[run.run_id], Load(workload=run.workload), run)
                self.measured += 1

    def _measured(self, configuration: Configuration, load: Load, run: PlannedRun) -> Measured:
        for _ in range(MOST_ATTEMPTS):
            found = self._measure(configuration, load, run.start)
            self.accelerator_s += found.accelerator_s
            if not found.disturbed:
                break
        return found


def simulate_study(study_file: Path, measure: Measure, seed: int = 0, root: Path = Path()) -> StudyResult:
    """Runs a whole study on figures of `measure`: its search, and the proof of what the search chose.

    `root` is the folder that contains `config/` and `envs/`. The same seed and figures give the same result.
    """
    return simulate_project(load_project(study_file, root), measure, seed)


def simulate_project(project: Project, measure: Measure, seed: int = 0) -> StudyResult:
    """`simulate_study` for a study that is loaded already."""
    runs = _Runs(measure, seed)
    past = _search(project, runs)
    found = [_proved(project, runs, past, stages) for stages in project.study.proofs]
    if (by_second := project.study.second) is None:
        return found[-1]
    return replace(found[-1], second=found[0], front=front(project.study, by_second, past))


def _proved(project: Project, runs: _Runs, past: Sequence[PastStage], stages: Sequence[str]) -> StudyResult:
    """The result of a proof with these stages; of all that was measured, by its objective."""
    before = None
    for stage in stages:
        study, plan = project.study.of_stage(stage), search.plan(project, stage, past, before)
        runs.measure(study, plan)
        table = tables(study, plan, runs.known, runs.jobs)
        before = ProofStage(plan, table)
    baseline, proposed = plan.candidates[0].configuration, plan.candidates[-1].configuration
    past = past if study is project.study else past_by_second(past)
    promised = promised_percent(study, past, proposed)
    proof = judge(study, table, promised) if len(plan.candidates) > 1 else None
    return StudyResult(
        winner=proposed if proof is not None and proof.holds else baseline,
        proposed=proposed,
        proof=proof,
        runs=runs.measured,
        accelerator_s=runs.accelerator_s,
    )


def run_search(project: Project, measure: Measure, seed: int = 0) -> list[PastStage]:
    """Searches a study from its first stage to its last, without the proof.

    The `winner` of the last stage is the winner of the search.
    """
    return _search(project, _Runs(measure, seed))


def _search(project: Project, runs: _Runs) -> list[PastStage]:
    past: list[PastStage] = []
    for stage in search.stage_names(project.study):
        if stage in AFTER_SEARCH:
            break
        plan = search.plan(project, stage, past)
        runs.measure(project.study, plan)
        table = tables(project.study, plan, runs.known, runs.jobs)
        past.append(PastStage(plan, search.decide(project.study, plan, table), table))
    return past


def tables(
    study: Study, plan: Plan, measured: Mapping[str, Measured], jobs: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The stage's table, with the columns of schemas.STAGE_TABLE that a decision reads.

    `measured` has the result of each run by its id, `jobs` the job that measured it.
    """
    rows = []
    for position, candidate in enumerate(plan.candidates):
        workloads = list(dict.fromkeys(run.workload for run in candidate.runs)) or [study.objective.on]
        for workload in workloads:
            runs = [run for run in candidate.runs if run.workload == workload]
            rows.append(_row(study, plan, position, candidate, workload, runs, measured, jobs or {}))
    return pd.DataFrame(rows)


def _row(
    study: Study,
    plan: Plan,
    position: int,
    candidate: PlannedCandidate,
    workload: str,
    runs: Sequence[PlannedRun],
    measured: Mapping[str, Measured],
    jobs: Mapping[str, str],
) -> dict[str, Any]:
    found = [measured[run.run_id] for run in runs]
    failed = next((each.failed for each in found if each.failed), None)
    reason, message, outcome = failed, failed, "failed" if failed else "ok"
    if candidate.not_run is not None:
        outcome, reason, message = NOT_RUN, "budget", candidate.not_run
    elif candidate.refused is not None:
        outcome, reason, message = "failed", "refused", candidate.refused
    _, basis = study.objective.metric_and_basis
    factor, _ = per_basis(basis, candidate.configuration.accelerators, study.hardware.per_node)
    well = [(run, each) for run, each in zip(runs, found, strict=True) if not each.failed]
    good = [(run, each) for run, each in well if not each.disturbed] or well
    second = [each.second for _, each in good]
    is_second = study.objective == study.objective.second
    values = second if is_second else [factor * fmean(each.rounds) for _, each in good]
    disturbed = "other processes took the CPUs" if any(each.disturbed for _, each in good) else None
    return {
        **candidate_columns(study, plan, position),
        "workload": workload,
        "run_id": runs[0].run_id if runs else None,
        "run_ids": [run.run_id for run in runs],
        "starts": len(good),
        "start_labels": [run.start for run, _ in good],
        "start_values": values,
        "second_values": second,
        "start_delays_percent": [math.nan if each.disturbed else 0.0 for _, each in good],
        "start_jobs": [jobs.get(run.run_id) for run, _ in good],
        "outcome": outcome,
        "reason": reason,
        "message": message,
        "validity": ("suspect" if disturbed else "ok") if outcome == "ok" else None,
        "validity_note": disturbed,
        "disturbed": disturbed,
        **_answers(study, plan, candidate, workload, measured),
        "constraints_missed": next((each.constraints_missed for each in found if each.constraints_missed), None),
        "slo_attainment": next((each.slo_attainment for each in found), None),
        "rounds": sum(len(each.rounds) for each in found),
        "success_rate": fmean(each.success_rate for each in found) if outcome == "ok" else None,
        "objective_value": fmean(values) if outcome == "ok" else None,
        "accelerator_s": sum(each.accelerator_s for each in found) if runs else None,
    }


def _answers(
    study: Study, plan: Plan, candidate: PlannedCandidate, workload: str, measured: Mapping[str, Measured]
) -> dict[str, str | None]:
    """The verdict on a candidate's answers against the baseline's, as in `servelab.results.answers`."""
    own = {run.run_id for run in plan.baseline_answers}
    if workload != study.objective.on or not candidate.answers or any(run.run_id in own for run in candidate.answers):
        return {"answers": None, "answers_note": None}
    lost = next((found for run in candidate.answers if (found := measured[run.run_id].changes_answers)), None)
    return {"answers": CHANGES if lost else SAME, "answers_note": lost}
