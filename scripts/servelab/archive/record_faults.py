"""Finds faults in a study's records: missing files, and files that do not match their name or another file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.core.identity import content_id, file_sha256, lock_sha256
from servelab.core.run_spec import RunSpec
from servelab.core.seal import STATUS, faults_of_seal
from servelab.measure.run_files import RunManifest, RunStatus, read_import
from servelab.metrics.capacity import find_capacity, judge, next_load
from servelab.metrics.tables import schemas
from servelab.metrics.tables.record_array import by_round, record_array

RUN_FILES = ("manifest.json", "requests.parquet", "spec.json", "status.json")


def run_faults(results: Path, run_ids: Iterable[str]) -> Iterator[str]:
    """One line per fault of the runs in `results/runs`: a missing file, or a specification that is not the name's."""
    for run_id in run_ids:
        folder = results / "runs" / run_id
        yield from _folder_faults(folder)
        if (spec := _read(folder / "spec.json")) is not None and content_id(spec) != run_id:
            yield f"{folder}/spec.json: was changed: it is the specification of run {content_id(spec)}"


def seal_faults(results: Path, run_ids: Iterable[str]) -> Iterator[str]:
    """One line per file of these runs that was changed, lost or added since the run was sealed; some have no seal."""
    for run_id in run_ids:
        folder = results / "runs" / run_id
        status = _read(folder / STATUS)
        if status and status.get("seal"):
            yield from (f"{folder}/{fault}" for fault in faults_of_seal(folder))


def workload_faults(results: Path, workload_ids: Iterable[str]) -> Iterator[str]:
    """One line per fault of the requests in `results/workloads`; absent requests are no fault."""
    for workload_id in workload_ids:
        folder = results / "workloads" / workload_id
        described = _read(folder / "workload.json")
        if described is None:
            yield f"{folder}/workload.json: missing or broken"
            continue
        if content_id(described["spec"]) != workload_id:
            yield f"{folder}/workload.json: was changed: it describes workload {content_id(described['spec'])}"
        requests = folder / "requests.parquet"
        if requests.exists() and file_sha256(requests) != described["requests_sha256"]:
            yield f"{requests}: was changed: workload.json has another sha256"


def sent_faults(results: Path, run_ids: Iterable[str]) -> Iterator[str]:
    """Runs that were sent other requests than those of their specification's workload."""
    for run_id in run_ids:
        folder = results / "runs" / run_id
        spec, manifest = _read(folder / "spec.json"), _read(folder / "manifest.json")
        if spec is None or not manifest:
            continue  # `run_faults` reports it, or nothing was sent
        workload = _read(results / "workloads" / content_id(spec["workload"]) / "workload.json")
        sent = manifest.get("workload", {}).get("requests_sha256")
        if workload is not None and sent != workload["requests_sha256"]:
            yield f"{folder}/manifest.json: was changed: it was sent other requests than its workload's"


def lock_faults(results: Path, run_ids: Iterable[str], locks: Iterable[Path]) -> Iterator[str]:
    """Runs whose engine was built from a lock that is not among these."""
    known = {lock_sha256(lock) for lock in locks}
    for run_id in run_ids:
        spec = _read(results / "runs" / run_id / "spec.json")
        if spec is not None and spec["engine"]["environment_sha256"] not in known:
            engine = spec["engine"]
            yield (
                f"{results}/runs/{run_id}: the lock of {engine['name']} {engine['version']} was changed: "
                f"none has sha256 {engine['environment_sha256']}"
            )


def log_faults(plans: Iterable[Path], logs: Path) -> Iterator[str]:
    """Logs of a recorded study that differ from those its plans were made from."""
    for plan in plans:
        for candidate in json.loads(plan.read_bytes())["candidates"]:
            for run in candidate["runs"]:
                for name, sha256 in run["spec"]["logs"].items():
                    if not (logs / name).is_file():
                        yield f"{logs / name}: missing"
                    elif file_sha256(logs / name) != sha256:
                        yield f"{logs / name}: was changed since {plan} was made"


def raise_faults(faults: Iterable[str], fix: str) -> None:
    """Raises one `ServelabError` for all faults, with the first in full."""
    found = list(dict.fromkeys(faults))
    if found:
        more = f" (and {len(found) - 1} more: {'; '.join(found[1:4])})" if len(found) > 1 else ""
        raise ServelabError(f"{found[0]}{more}; {fix}")


def _folder_faults(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        yield f"{folder}: missing"
        return
    yield from (f"{folder / name}: missing" for name in RUN_FILES if not (folder / name).is_file())


def _read(path: Path) -> Any:
    """JSON content; None for a missing or broken file."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


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
