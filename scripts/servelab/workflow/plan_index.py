"""The plans on disk: the runs that they ask for, by id, and the jobs that measure them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from servelab.core.errors import ServelabError
from servelab.core.run_spec import RunSpec
from servelab.study.plan import in_order, jobs_of

Job = Sequence[Sequence[str]]
"""Runs of a measuring job, by id: its visits, and the runs of each visit, in the order of measurement."""


@dataclass(frozen=True)
class _Read:
    """A plan as it was when it was read."""

    written_ns: int
    ids: list[str]
    jobs: list[Job]


class Plans:
    """The files `stages/*/plan.json` of all live studies; each is read once, and again when it has changed.

    A job on another node may see a plan a while after the node that wrote it: `patience_s` says how long to look for
    one.
    """

    def __init__(self, results: Path, patience_s: Callable[[], float]) -> None:
        self._results, self._patience_s = results, patience_s
        self._content: dict[str, dict[str, Any]] = {}
        self.titles: dict[str, str] = {}
        """Study, stage, candidate and server start of each run that was read."""
        self._read: dict[Path, _Read] = {}
        self.spec: Callable[[str], RunSpec] = cache(lambda run_id: RunSpec.model_validate(self.content(run_id)))
        """A run's specification."""

    def content(self, run_id: str) -> dict[str, Any]:
        """The same as in the plan: an engine takes arguments in the order in which they are given.

        Reads the plans until one asks for the run; `ServelabError` if none does.
        """
        if run_id not in self._content:
            self._look_for(run_id)
        return self._content[run_id]

    def ids(self, plan: Path) -> list[str]:
        """Runs of one plan, in order."""
        return self._of(plan).ids

    def jobs(self, plan: Path) -> list[Job]:
        """The jobs of one plan."""
        return self._of(plan).jobs

    def job_until(self, run_id: str) -> Job:
        """The job that has a run, without what follows that run; of several plans' jobs the one with the most runs."""
        self.content(run_id)
        found = [
            _until(run_id, job)
            for _, read in sorted(self._read.items())
            for job in read.jobs
            if any(run_id in visit for visit in job)
        ]
        return max(found, key=lambda job: sum(map(len, job)))

    def partners(self, run_id: str) -> list[str]:
        """Runs of the same load in the other visit of a run's pair; none if it is in no pair of the plans so far."""
        jobs = (job for read in self._read.values() for job in read.jobs)
        pairs = [job for job in jobs if len(job) > 1 and any(run_id in visit for visit in job)]
        others = dict.fromkeys(run for job in pairs for visit in job if run_id not in visit for run in visit)
        return [run for run in others if _load(self._content[run]) == _load(self._content[run_id])]

    def count(self) -> int:
        """How many plans were read."""
        return len(self._read)

    def _of(self, plan: Path) -> _Read:
        written_ns = plan.stat().st_mtime_ns
        if plan not in self._read or self._read[plan].written_ns != written_ns:
            self._read[plan] = self._indexed(json.loads(plan.read_bytes()), written_ns)
        return self._read[plan]

    def _indexed(self, plan: dict[str, Any], written_ns: int) -> _Read:
        candidates = [
            # a plan of an older version has neither points nor answers
            in_order(
                each["runs"],
                each.get("points", ()),
                each.get("answers", ()),
                itemgetter("start"),
                itemgetter("level"),
            )
            for each in plan["candidates"]
        ]
        specs = {run["run_id"]: run["spec"] for runs in candidates for run in runs}
        for each, runs in zip(plan["candidates"], candidates, strict=True):
            title = f"{plan.get('study')}, {plan.get('stage')}: {each.get('candidate')}"
            self.titles |= {run["run_id"]: f"{title}, {run.get('start', '')}" for run in runs}
        self._content |= specs
        # a plan of an older version has no starts
        jobs = [
            tuple(tuple(run["run_id"] for run in visit) for visit in job)
            for job in jobs_of(candidates, lambda run: str(run.get("start", "")))
        ]
        return _Read(written_ns, list(specs), list(jobs))

    def _look_for(self, run_id: str) -> None:
        until = time.monotonic() + self._patience_s()
        while True:
            for plan in sorted(self._results.glob("studies/*/stages/*/plan.json")):
                self._of(plan)
            if run_id in self._content:
                return
            if time.monotonic() >= until:
                raise ServelabError(f"no plan.json under {self._results}/studies asks for {run_id}")
            time.sleep(1)


def _until(run_id: str, job: Job) -> Job:
    number = next(number for number, visit in enumerate(job) if run_id in visit)
    last = job[number]
    return (*job[:number], last[: last.index(run_id) + 1])


def _load(spec: dict[str, Any]) -> tuple[Any, ...]:
    return spec["workload"], spec["protocol"], spec.get("capacity"), spec.get("objective")
