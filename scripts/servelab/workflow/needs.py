"""What a measuring job needs: files to be made first, the option of its script, hardware."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from servelab.core.identity import canonical_json
from servelab.core.run_spec import HardwareSpec, RunSpec, Strict
from servelab.machine.devices import DEVICES
from servelab.measure.sealed_runs import SealedRuns
from servelab.study.order_of_limits import order_of_limit
from servelab.workflow.plan_index import Job, Plans
from servelab.workflow.prepared_inputs import run_files

F = TypeVar("F", bound=Callable[..., object])

CheckOf = Callable[[RunSpec, Mapping[str, str]], Iterable[str]]
"""(a run's specification, its files) → the check of its environment; none if there is none."""

_FILES = ("environment", "client_environment", "model", "requests")


class RunNeeds:
    """What runs need that differ in their settings alone, by the JSON of their specification without settings."""

    def __init__(self, text: str, check_of: CheckOf) -> None:
        spec = RunSpec.model_validate_json(text)
        self.files = run_files(spec)
        self.hardware = spec.hardware
        self.json = ",".join(f"{json.dumps(name)}:{json.dumps(self.files.get(name))}" for name in _FILES)
        """The files as they are in the option `--job`."""
        self._missing = [*self.files.values(), *check_of(spec, self.files)]

    def missing_files(self) -> list[str]:
        """Those of the files that are to be made first; one that was there once is not looked for again."""
        self._missing = [file for file in self._missing if not _exists(file)]
        return self._missing


class Needs:
    """What the jobs of the plans need; a job is named by its leader, the last of its runs that is missing."""

    def __init__(self, plans: Plans, sealed: SealedRuns, check_of: CheckOf) -> None:
        self.plans, self._sealed = plans, sealed
        self._of = cache(lambda text: RunNeeds(text, check_of))
        self.priority: Callable[[str], float] = cache(lambda leader: order_of_limit(json.loads(plans.text(leader))))
        """Of a job: what may be fastest is measured first, so that it is measured if the time is short."""

    def job(self, leader: str) -> Job:
        """Runs that the job measures, visit by visit: those that are complete are left out."""
        visits = self.plans.job_led_by(leader)
        if len(visits) == len(visits[0]) == 1:  # no need to look for it: it is the leader
            return visits
        complete = self._sealed.is_complete
        left = [tuple(run for run in visit if run == leader or not complete(run)) for visit in visits]
        return [visit for visit in left if visit]

    def runs(self, leader: str) -> list[str]:
        """The same as a list."""
        return [run for visit in self.job(leader) for run in visit]

    def files(self, leader: str) -> list[str]:
        """Files that are to be made before the job, each once; and the mark of a broken run, which starts the job."""
        missing = dict.fromkeys(file for need in self._needed(leader) for file in need.missing_files())
        return [*missing, *self._sealed.marks(leader)]

    def hardware(self, leader: str) -> HardwareSpec:
        """The hardware of the job: that of the run with the most accelerators."""
        return max((need.hardware for need in self._needed(leader)), key=lambda hardware: hardware.count)

    def option(self, leader: str) -> str:
        """The job as JSON, quoted; one text, as Snakemake formats each parameter for each of thousands of jobs."""
        visits = ",".join(f"[{','.join(map(self._json, visit))}]" for visit in self.job(leader))
        return shlex.quote(f'{{"visits":[{visits}]}}')

    def _json(self, run_id: str) -> str:
        return f'{{"spec":{self.plans.text(run_id)},{self._of_run(run_id).json}}}'

    def _needed(self, leader: str) -> Iterator[RunNeeds]:
        return map(self._of_run, self.runs(leader))

    def _of_run(self, run_id: str) -> RunNeeds:
        return self._of(self.plans.without_settings(run_id))


def serving_threads(hardware: HardwareSpec, cores: int) -> int:
    """CPU cores of this machine that a run takes."""
    return DEVICES.get(hardware.device).threads(cores, hardware.count)


def spec_json(spec: Strict) -> str:
    """A specification as one line of sorted JSON: equal content is an equal parameter."""
    return canonical_json(spec.model_dump(mode="json"))


def with_signature(function: F) -> F:
    """The function with its signature found: Snakemake looks it up time and again for each of thousands of runs."""
    signed: Any = function
    signed.__signature__ = inspect.signature(function)
    return function


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - faster, and asked for each of thousands of runs
