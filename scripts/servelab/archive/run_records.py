"""Reads the records of runs that come from elsewhere as strictly as the workflow will, before they count as runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.core.identity import content_id, file_sha256
from servelab.core.run_spec import RunSpec
from servelab.core.seal import faults_of_seal
from servelab.measure.imported_run import read_import
from servelab.measure.run_files import RunManifest, RunStatus
from servelab.metrics.capacity import find_capacity, judge, next_load
from servelab.metrics.tables import schemas
from servelab.metrics.tables.record_array import by_round, record_array


def faults_of_run(folder: Path) -> list[str]:
    """What keeps the folder from being a run of that name: a line per file, which begins with the file's name."""
    return list(_faults_of_records(folder)) or faults_of_seal(folder)


def _faults_of_records(folder: Path) -> Iterator[str]:
    run_id = folder.name
    try:
        RunSpec.read(folder / "spec.json")
        if (found := content_id(json.loads((folder / "spec.json").read_bytes()))) != run_id:
            yield f"spec.json: is the specification of run {found}"
        for name, kind in (("status.json", RunStatus), ("manifest.json", RunManifest)):
            if (found := kind.read(folder / name).run_id) != run_id:
                yield f"{name}: is of run {found}"
        read_import(folder)
    except ServelabError as error:
        yield str(error).removeprefix(f"{folder}/")
        return
    tables = {"requests.parquet": schemas.RUN_REQUESTS, "telemetry.parquet": schemas.TELEMETRY}
    tables |= {"steps.parquet": schemas.RUN_REQUESTS, "answers.parquet": schemas.RUN_ANSWERS}
    for name, schema in tables.items():
        if name == "requests.parquet" or (folder / name).exists():
            yield from _faults_of_table(folder / name, schema)
    yield from _faults_of_steps(folder)


def _faults_of_steps(folder: Path) -> Iterator[str]:
    """Whether a search for capacity went as its status says, by the requests of its steps."""
    spec, status = RunSpec.read(folder / "spec.json"), RunStatus.read(folder / "status.json")
    if spec.capacity is None or not status.steps:
        return
    first = spec.incumbent_capacity
    try:
        rounds = by_round(record_array(pq.read_table(folder / "steps.parquet", schema=schemas.RUN_REQUESTS)))
        kept = record_array(pq.read_table(folder / "requests.parquet", schema=schemas.RUN_REQUESTS))
    except (OSError, ValueError, pa.ArrowException) as error:
        yield f"steps.parquet: cannot be read as Parquet: {str(error).splitlines()[0]}"
        return
    for number, step in enumerate(status.steps):
        of_step = rounds.get(number)
        if of_step is None or next_load(spec.capacity, status.steps[:number], first) != step.load:
            yield f"status.json: step {number} of the search for capacity is not the one that follows"
        elif judge(spec.capacity, step.load, of_step[of_step["phase"] != "settle"]) != step:
            yield f"status.json: step {number} of the search for capacity is not what steps.parquet shows"
    found = find_capacity(spec.capacity, status.steps)
    if found is not None and len(kept) != len(rounds.get(found.step, ())):
        yield "requests.parquet: is not the step of the search for capacity that holds"


def faults_of_workload(folder: Path) -> list[str]:
    """The same of the requests of a workload; they may be left out of an archive."""
    return list(_faults_of_requests(folder))


def _faults_of_requests(folder: Path) -> Iterator[str]:
    try:
        described = json.loads((folder / "workload.json").read_bytes())
        if (found := content_id(described["spec"])) != folder.name:
            yield f"workload.json: describes workload {found}"
        requests = folder / "requests.parquet"
        if requests.exists():
            if file_sha256(requests) != described["requests_sha256"]:
                yield "requests.parquet: is not what workload.json describes"
            yield from _faults_of_table(requests, schemas.WORKLOAD_REQUESTS)
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        yield f"workload.json: cannot be read: {error}"


def _faults_of_table(path: Path, schema: pa.Schema) -> Iterator[str]:
    try:
        with pq.ParquetFile(path) as file:
            if lacking := [name for name in schema.names if name not in file.schema_arrow.names]:
                yield f"{path.name}: has no column {', '.join(lacking)}"
                return
            for batch in file.iter_batches(columns=schema.names):  # every page, in little memory
                pa.Table.from_batches([batch]).select(schema.names).cast(schema)
    except (OSError, ValueError, pa.ArrowException) as error:
        yield f"{path.name}: cannot be read as Parquet: {str(error).splitlines()[0]}"
