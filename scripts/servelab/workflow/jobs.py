"""Measuring jobs: the plans that ask for them, what each needs, and what a stage waits for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from servelab.core.errors import ServelabError
from servelab.core.run_spec import HardwareSpec, RunSpec
from servelab.measure.sealed_runs import SealedRuns
from servelab.study.plan import Plan, PlannedRun
from servelab.study.project import LIVE, is_live, name_of
from servelab.workflow.needs import run_files
from servelab.workflow.rule_parts import stage_file
from servelab.workflow.studies import Studies

Job = Sequence[Sequence[str]]
"""Runs of a measuring job, by id: its visits, and the runs of each visit, in the order of measurement."""


class _Read(NamedTuple):
    """A plan as it was when it was read."""

    written_ns: int
    ids: list[str]
    jobs: Sequence[Job]


class Plans:
    """The files `stages/*/plan.json` of all live studies; each is read once, and again when it has changed.

    A job on another node may see a plan a while after the node that wrote it: `patience_s` says how long to look for
    one.
    """

    def __init__(self, results: Path, patience_s: Callable[[], float]) -> None:
        self._results, self._patience_s = results, patience_s
        self._read: dict[Path, _Read] = {}
        self._runs: dict[str, PlannedRun] = {}
        self.titles: dict[str, str] = {}
        """Study, stage, candidate and server start of each run that was read."""

    def read(self, path: Path) -> _Read:
        """Runs and jobs of one plan."""
        written_ns = path.stat().st_mtime_ns
        if path not in self._read or self._read[path].written_ns != written_ns:
            plan = Plan.read(path)
            jobs = [[[run.run_id for run in visit] for visit in job] for job in plan.jobs()]
            self._read[path] = _Read(written_ns, plan.run_ids(), jobs)
            for candidate in plan.candidates:
                for run in candidate.measured_runs:
                    self._runs[run.run_id] = run
                    self.titles[run.run_id] = f"{plan.study}, {plan.stage}: {candidate.candidate}, {run.start}"
        return self._read[path]

    def spec(self, run_id: str) -> RunSpec:
        """A run's specification, from the first plan that asks for it; `ServelabError` if none does."""
        if run_id not in self._runs:
            self._look_for(run_id)
        return self._runs[run_id].spec

    def job_until(self, run_id: str) -> Job:
        """The job that has a run, without what follows that run; of several plans' jobs the one with the most runs."""
        self.spec(run_id)
        found = [_until(run_id, job) for _, read in sorted(self._read.items()) for job in read.jobs]
        return max(found, key=lambda job: sum(map(len, job)))

    def partners(self, run_id: str) -> list[str]:
        """Runs of the same load in the other visit of a run's pair; none if it is in no pair of the plans so far."""
        jobs = (job for read in self._read.values() for job in read.jobs)
        pairs = [job for job in jobs if len(job) > 1 and any(run_id in visit for visit in job)]
        others = dict.fromkeys(run for job in pairs for visit in job if run_id not in visit for run in visit)
        return [run for run in others if _load(self.spec(run)) == _load(self.spec(run_id))]

    def _look_for(self, run_id: str) -> None:
        until = time.monotonic() + self._patience_s()
        while True:
            for plan in sorted(self._results.glob("studies/*/stages/*/plan.json")):
                with suppress(ServelabError):  # a plan of an older version
                    self.read(plan)
            if run_id in self._runs:
                return
            if time.monotonic() >= until:
                raise ServelabError(f"no plan.json under {self._results}/studies asks for {run_id}")
            time.sleep(1)


def _until(run_id: str, job: Job) -> Job:
    """A job up to one of its runs; empty if it has not got it."""
    for number, visit in enumerate(job):
        if run_id in visit:
            return [*job[:number], visit[: visit.index(run_id) + 1]]
    return []


def _load(spec: RunSpec) -> tuple[Any, ...]:
    return spec.workload, spec.protocol, spec.capacity, spec.objective


CheckOf = Callable[[RunSpec, Mapping[str, str]], Iterable[str]]
"""(a run's specification, its files) → the check of its environment; none if there is none."""

_FILES = ("environment", "client_environment", "model", "requests")


class MeasuringJobs:
    """The jobs of the plans. A job is named by the last of its runs that is missing, and measures all that are."""

    def __init__(self, plans: Plans, sealed: SealedRuns, check_of: CheckOf) -> None:
        self.plans, self._sealed, self._check_of = plans, sealed, check_of
        self._files_of = cache(lambda run_id: run_files(plans.spec(run_id)))

    def visits(self, last: str) -> Job:
        """Runs that the job measures, visit by visit: those that are complete are left out."""
        complete = self._sealed.is_complete
        visits = self.plans.job_until(last)
        left = [tuple(run for run in visit if run == last or not complete(run)) for visit in visits]
        return [visit for visit in left if visit]

    def runs(self, last: str) -> list[str]:
        """The same as a list."""
        return [run for visit in self.visits(last) for run in visit]

    def title(self, last: str) -> str:
        """Study, stage, candidate and server start of a job; those of both for a pair."""
        return "; ".join(self.plans.titles[visit[0]] for visit in self.visits(last))

    def files(self, last: str) -> list[str]:
        """Files that are to be made before the job, each once; and the mark of a broken run, which starts the job."""
        needed: dict[str, None] = {}
        for run in self.runs(last):
            files = self._files_of(run)
            needed |= dict.fromkeys([*files.values(), *self._check_of(self.plans.spec(run), files)])
        return [*(file for file in needed if not Path(file).exists()), *self._sealed.marks(last)]

    def hardware(self, last: str) -> HardwareSpec:
        """The hardware of the job: that of the run with the most accelerators."""
        return max((self.plans.spec(run).hardware for run in self.runs(last)), key=lambda hardware: hardware.count)

    def json(self, last: str) -> str:
        """The job as its script reads it."""
        visits = [[self._run(run) for run in visit] for visit in self.visits(last)]
        return json.dumps({"visits": visits}, separators=(",", ":"))

    def _run(self, run_id: str) -> dict[str, Any]:
        files = self._files_of(run_id)
        return {"spec": self.plans.spec(run_id).model_dump(mode="json"), **{name: files.get(name) for name in _FILES}}


MEASURED = ".snakemake/measured/{study}/{stage}"
"""Mark of one workflow that all runs of a stage are complete; no job reads it."""


class StageRuns:
    """Runs of the stages of live studies.

    `wait_for_plan(study, stage)` asks Snakemake for a plan, and raises `unplanned` where it has to be made first.
    `is_main_process` is False within a job on another node.
    """

    def __init__(
        self,
        studies: Studies,
        plans: Plans,
        sealed: SealedRuns,
        wait_for_plan: Callable[[str, str], object],
        unplanned: type[Exception],
        *,
        is_main_process: bool,
    ) -> None:
        self._studies, self._plans, self._is_main_process = studies, plans, is_main_process
        self._sealed = sealed
        self._wait_for_plan, self._unplanned = wait_for_plan, unplanned

    def missing(self, study: str, stage: str) -> list[str]:
        """A file for each measuring job of a stage, once its plan is known.

        It is of the last run of the job that is missing: when that is there, all are. Nothing asks for complete runs.
        """
        plan = self._plan(study, stage)
        runs = (run for job in self._plans.read(plan).jobs if (run := self._last_missing(job))) if plan else ()
        return [f"results/runs/{run_id}/manifest.json" for run_id in dict.fromkeys(runs)]

    def to_wait_for(self, study: str, stage: str) -> list[str]:
        """Files that are made once no run of a stage is missing; none where none is missing now."""
        missing = self.missing(study, stage)
        # with one of them, as there may be a mark of an earlier time
        return [MEASURED.format(study=study, stage=stage), missing[0]] if missing else []

    def measured(self, study: str, stage: str) -> list[str]:
        """Status files of a stage's runs: files that no rule makes, so that they cost no job.

        Where some are missing, what to wait for: then Snakemake asks again.
        """
        # a job on another node has them all, and may see them a while later
        waiting = self.to_wait_for(study, stage) if self._is_main_process else []
        plan = None if waiting else self._plan(study, stage)
        here = (run_id for run_id in (self._plans.read(plan).ids if plan else []) if self._sealed.is_here(run_id))
        return waiting or [f"results/runs/{run_id}/status.json" for run_id in here]

    def of_study(self, search: str) -> list[str]:
        """Status files of all runs of a study, each once; a recorded study has none."""
        stages = self._studies.planned_stages(search) if is_live(search) else []
        return list(dict.fromkeys(path for stage in stages for path in self.measured(name_of(search), stage)))

    def all_to_wait_for(self) -> list[str]:
        """The same for all stages that have a plan."""
        awaited = []
        for study in self._studies.live:
            for stage in self._studies.planned_stages(f"{LIVE}/{study}"):
                try:
                    awaited += self.to_wait_for(study, stage)
                except self._unplanned:
                    continue  # an older plan: it is made again, and then Snakemake asks again
        return awaited

    def _plan(self, study: str, stage: str) -> Path | None:
        """A stage's plan, once it is as it should be; None before there is one, which the same rule waits for."""
        plan = Path(stage_file(f"studies/{study}", stage, "plan.json"))
        if not plan.exists():
            return None
        self._wait_for_plan(study, stage)
        return plan

    def _last_missing(self, job: Job) -> str | None:
        """The last run of a job that is missing or broken; None if none is."""
        complete = self._sealed.is_complete
        return next((run for visit in reversed(job) for run in reversed(visit) if not complete(run)), None)
