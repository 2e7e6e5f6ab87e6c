"""Measures what is missing of a job: exits 0 with results, failed candidates included; 75 on an outage.

A job is one visit, or two (a pair). A visit is one server start that serves several runs:
`{"visits": [[{"spec": …, "environment": …, "client_environment": …, "model": …, "requests": …}, …], …]}`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.core import cli
from servelab.core.ssh_signature import parse_key
from servelab.machine.device_names import parse_stated
from servelab.measure.inputs import parse_job
from servelab.measure.interrupts import outage_on_interrupt
from servelab.measure.visits import measure_job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", required=True, help="specifications and files of the runs of each visit, as JSON")
    parser.add_argument("--runs", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--names", default="{}", help="what studies state about names of accelerators, as JSON")
    parser.add_argument("--sign", help="key that signs the runs and its identity, as JSON; see docs/archive.md")
    parser.add_argument(
        "--measure-imported", action="store_true", help="set runs that were restored from an archive aside"
    )
    arguments = parser.parse_args()
    job, stated = parse_job(arguments.job), parse_stated(arguments.names)
    key = parse_key(arguments.sign) if arguments.sign else None
    with outage_on_interrupt():
        statuses = measure_job(job, arguments.runs, stated, key, use_imported=not arguments.measure_imported)
    for status in statuses:
        if status.is_ok:
            print(f"{status.run_id}: {status.rounds} rounds, {status.requests} requests")
        else:
            print(f"{status.run_id}: failed, {status.reason}: {status.message}")


cli.run(main, without_pandas=True)
