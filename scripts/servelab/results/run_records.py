"""Reads the sealed records of a run, and computes its figures and checks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from servelab.core.errors import ServelabError
from servelab.core.run_spec import RunSpec
from servelab.core.seal import fault_of_digests
from servelab.measure.clients import CLIENTS
from servelab.measure.run_files import RunStatus
from servelab.metrics.capacity import capacity_values, find_capacity
from servelab.metrics.definitions import RunData, summarise, summarise_rounds
from servelab.metrics.objective import count_beyond
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_bytes
from servelab.metrics.timeline import delay_of
from servelab.results.checks import Evidence, check_run
from servelab.results.physical_limit import limit_of_run
from servelab.study.study import Study

_REQUESTS, _TELEMETRY = "requests.parquet", "telemetry.parquet"
Figures = dict[str, list[dict[str, Any]]]
"""Rows of each of a run's tables, without study, run_id, workload and start; empty for a run that failed.

`limits`, `physical_limit` and `delay` are no tables: they have the rows of `servelab.metrics.objective.count_beyond`,
the one of `servelab.results.physical_limit`, and how long the run waited for CPUs that others had, if that was seen.
"""


def read_sealed(folder: Path, tables: Mapping[str, pa.Schema]) -> tuple[RunStatus, dict[str, pa.Table]]:
    """Status and tables of a run; `tables` is file → schema. Only telemetry may be missing.

    `ServelabError` if a file is missing, cannot be read, or is not that of the run's seal.
    """
    try:
        content = (folder / "status.json").read_bytes()
        status = RunStatus.parse(content, folder / "status.json")
        there = [name for name in tables if name != _TELEMETRY or (folder / name).exists()]
        files = {name: (folder / name).read_bytes() for name in there}
        digests = {name: hashlib.sha256(files[name]).hexdigest() if name in files else None for name in tables}
        if fault := fault_of_digests(content, digests):
            raise ServelabError(fault)
        return status, {name: read_bytes(file, tables[name]) for name, file in files.items()}
    except (OSError, ValueError, pa.ArrowException, ServelabError) as error:
        raise incomplete(folder, error) from None


def incomplete(folder: Path, error: Exception | str) -> ServelabError:
    """The error for a run folder that cannot be read."""
    return ServelabError(f"{folder}: not a complete run ({error}); run again, and it is set aside")


def read_run(study: Study, workload: str, spec: RunSpec, folder: Path) -> tuple[RunStatus, RunData]:
    """Status and records of the run of a workload in a folder.

    `ServelabError` if a file is missing, cannot be read, or is not that of the run's seal.
    """
    status, tables = read_sealed(folder, {_REQUESTS: schemas.RUN_REQUESTS, _TELEMETRY: schemas.TELEMETRY})
    price = study.hardware.price_per_accelerator_hour
    price = None if price is None else price * spec.hardware.count
    capacity = capacity_values(spec.capacity, status.steps)
    return status, RunData(tables[_REQUESTS], study.slos_of(workload), tables.get(_TELEMETRY), price, capacity)


def parse_run(study: Study, spec: RunSpec, status: RunStatus, data: RunData) -> Figures:
    """The figures of a run that went well."""
    summary, rounds = summarise(data, CLIENTS.get(study.client).definitions), summarise_rounds(data)
    values: dict[str, dict[int, float]] = {}
    for entry in rounds:
        values.setdefault(entry["metric"], {})[entry["round"]] = entry["value"]
    found = None if spec.capacity is None else find_capacity(spec.capacity, status.steps)
    if found is not None:
        spec = spec.at(status.steps[found.step].load)
    limit = limit_of_run(spec, status, data)
    evidence = Evidence(
        records=data.requests,
        spec=spec,
        server_starts=status.server_starts,
        summary={entry["metric"]: entry for entry in summary},
        rounds=values,
        client=status.client_rounds,
        telemetry=data.samples,
        limit=limit,
        loads_sent=len(status.steps),
    )
    return {
        "metrics": summary,
        "rounds": rounds,
        "checks": check_run(evidence),
        "limits": count_beyond(data, study.objective.constraints),
        "physical_limit": [limit.columns],
        "delay": [{"percent": delay.percent}] if (delay := delay_of(evidence.loaded)) and delay.is_seen else [],
    }
