"""The plans on disk: the runs that they ask for, by id, and the jobs that measure them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from servelab.core.errors import ServelabError
from servelab.core.run_spec import RunSpec, Settings
from servelab.study.plan import Plan, in_order, jobs_of

_NO_SETTINGS = {
    name: json.loads(to_json(RunSpec.model_fields[name].get_default(call_default_factory=True)))
    for name in Settings.__annotations__
}

Job = Sequence[Sequence[str]]
"""Runs of a measuring job, by id: its visits, and the runs of each visit, in the order of measurement."""


@dataclass(frozen=True)
class _Read:
    """A plan as it was when it was read."""

    written_ns: int
    ids: list[str]
    jobs: list[Job]
    job_of: dict[str, Job]


class Plans:
    """The files `stages/*/plan.json` of all live studies; each is read once, and again when it has changed.

    A job on another node may see a plan a while after the node that wrote it: `patience_s` says how long to look for
    one.
    """

    def __init__(self, results: Path, patience_s: Callable[[], float]) -> None:
        self._results, self._patience_s = results, patience_s
        self._texts: dict[str, str] = {}
        self._without_settings: dict[str, str] = {}
        self._specs: dict[str, RunSpec] = {}
        self._read: dict[Path, _Read] = {}
        self._foreseen: set[Path] = set()

    def spec(self, run_id: str) -> RunSpec:
        """A run's specification."""
        if run_id not in self._specs:
            self._specs[run_id] = RunSpec.model_validate_json(self.text(run_id))
        return self._specs[run_id]

    def text(self, run_id: str) -> str:
        """Its JSON; reads the plans until one asks for it, and is a `ServelabError` if none does."""
        if run_id not in self._texts:
            self._look_for(run_id)
        return self._texts[run_id]

    def without_settings(self, run_id: str) -> str:
        """Its JSON with default settings: one text for the thousands that differ only there."""
        self.text(run_id)
        return self._without_settings[run_id]

    def ids(self, plan: Path) -> list[str]:
        """What one plan asks for, in order."""
        return self._of(plan).ids

    def jobs(self, plan: Path) -> list[Job]:
        """The jobs of one plan."""
        return self._of(plan).jobs

    def job_led_by(self, run_id: str) -> Job:
        """The job whose last run is this one: of each plan's job that has it, all runs up to it.

        Visits that have a run in common are one visit.
        """
        self.text(run_id)
        found = list(
            dict.fromkeys(_up_to(run_id, read.job_of[run_id]) for read in self._read.values() if run_id in read.job_of)
        )
        return found[0] if len(found) == 1 else _united(run_id, found)

    def count(self) -> int:
        """How many plans were read."""
        return len(self._read)

    def foresee(self, path: Path, plan: Plan) -> None:
        """Takes a plan for the content of a file that is not made yet, or is to be made again with other runs."""
        if path not in self._foreseen and not (path.exists() and self._of(path).ids == plan.run_ids()):
            self._foreseen.add(path)
            self._read[path] = self._indexed(json.loads(plan.model_dump_json()), written_ns=0)

    def _of(self, plan: Path) -> _Read:
        if plan in self._foreseen:
            return self._read[plan]
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
        for run_id, spec in specs.items():
            self._texts[run_id] = _json(spec)
            self._without_settings[run_id] = sys.intern(_json({**spec, **_NO_SETTINGS}))
        # a plan of an older version has no starts
        jobs = [
            tuple(tuple(run["run_id"] for run in visit) for visit in job)
            for job in jobs_of(candidates, lambda run: str(run.get("start", "")))
        ]
        job_of: dict[str, Job] = {run_id: job for job in jobs for visit in job for run_id in visit}
        return _Read(written_ns, list(specs), list(jobs), job_of)

    def _look_for(self, run_id: str) -> None:
        until = time.monotonic() + self._patience_s()
        while True:
            for plan in sorted(self._results.glob("studies/*/stages/*/plan.json")):
                self._of(plan)
            if run_id in self._texts:
                return
            if time.monotonic() >= until:
                raise ServelabError(f"no plan.json under {self._results}/studies asks for {run_id}")
            time.sleep(1)


def _up_to(run_id: str, job: Job) -> Job:
    """A job without the runs after this one."""
    number = next(number for number, visit in enumerate(job) if run_id in visit)
    last = job[number]
    return (*job[:number], last[: last.index(run_id) + 1])


def _united(run_id: str, jobs: Sequence[Job]) -> Job:
    """One job for several that end with the same run."""
    visits: list[dict[str, None]] = []
    for visit in (visit for job in jobs for visit in job):
        shared = [known for known in visits if not known.keys().isdisjoint(visit)]
        visits = [known for known in visits if known not in shared]
        visits.append({each: None for part in [*shared, visit] for each in part})
    visits.sort(key=lambda visit: run_id in visit)
    return tuple(tuple(sorted(visit, key=lambda each: each == run_id)) for visit in visits)


def _json(planned: Any) -> str:
    """In the plan's own order, as an engine takes arguments in the order in which they are given."""
    return to_json(planned).decode()
