"""Measures what is missing of a job: exits 0 with results, failed candidates included; 75 on an outage.

A job is one visit, or two (a pair). A visit is one server start that serves several runs:
`{"visits": [[{"spec": …, "environment": …, "client_environment": …, "model": …, "requests": …}, …], …]}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import Outage, ServelabError
from servelab.core.files import write_json
from servelab.machine.allocations.slurm import Slurm
from servelab.measure.inputs import ENDS_AT, STEP, MeasuringJob
from servelab.measure.interrupts import COORDINATOR, outage_on_interrupt
from servelab.measure.run_files import RunStatus, fault_file
from servelab.measure.visits import measure_job


def measure(rule: RuleJob) -> None:
    manifest = rule.output.manifest
    try:
        statuses = _measured(rule, manifest.parents[1])
    except ServelabError as error:
        with suppress(Outage):  # the disk may be full
            write_json(fault_file(manifest.parent), {"kind": error.kind, "reason": error.reason})
        raise
    for status in statuses:
        if status.is_ok:
            print(f"{status.run_id}: {status.rounds} rounds, {status.requests} requests")
        else:
            why = f"disturbed, it counts for nothing: {status.disturbed}; " if status.disturbed else ""
            print(f"{status.run_id}: {why}failed, {status.reason}: {status.message}")


def _measured(rule: RuleJob, runs: Path) -> list[RunStatus]:
    given = rule.params
    job, found_as = MeasuringJob.model_validate_json(given.job), json.loads(given.get("names", "{}"))
    if step := os.environ.pop(STEP, None):
        (gres, cpus), count = step.split(), job.visits[0][0].spec.hardware.count
        words = [sys.executable, *sys.argv]
        command, variables = Slurm().on_any_node(f"{gres}:{count}", int(cpus) * count, words)
        variables.pop(COORDINATOR, None)  # its pid is of this machine
        os.execvpe(command[0], command, variables)  # noqa: S606
    if ends_at := os.environ.get(ENDS_AT):
        from servelab.results.past_runs import PastTimes  # few studies run in one allocation

        visits = [[run.spec for run in visit] for visit in job.visits]
        PastTimes(runs).check_time_left(visits, float(ends_at), time.time())
    with outage_on_interrupt():
        return measure_job(job, runs, found_as)


run_rule(globals(), without_pandas=True)
