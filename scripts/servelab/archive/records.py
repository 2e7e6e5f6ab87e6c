"""Raw records of a study: the runs that its files name, and whether each is what its name says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.core.identity import content_id, file_sha256
from servelab.core.run_spec import RunSpec
from servelab.core.seal import faults_of_seal
from servelab.measure.run_files import RunManifest, RunStatus, read_import
from servelab.metrics.capacity import find_capacity, judge, next_load
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import by_round, read_arrow, record_array

_KEY = re.compile(r"(?:^|_)run_ids?(?:_|$)")
_ID = re.compile(r"[0-9a-f]{20}")


def referenced_runs(files: Iterable[Path]) -> dict[str, Path]:
    """All runs that these JSON and Parquet files name in keys and columns like `run_id`, each with the first file.

    An unreadable file is a `ServelabError`.
    """
    found: dict[str, Path] = {}
    for file in files:
        for key, value in _named(file):
            if _KEY.search(key) and _ID.fullmatch(value):
                found.setdefault(value, file)
    return found


def read_json(path: Path) -> Any:
    """The content of a JSON file; `ServelabError` names one that is missing or broken."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ServelabError(f"{path}: missing") from None
    except (OSError, ValueError) as error:
        raise ServelabError(f"{path}: cannot be read: {error}") from None


def _named(file: Path) -> Iterator[tuple[str, str]]:
    """Key or column, and each text there."""
    if file.suffix == ".json":
        yield from _texts("", read_json(file))
        return
    try:
        names = [name for name in pq.read_schema(file).names if _KEY.search(name)]
        columns = read_arrow(file, names).columns
    except (OSError, pa.ArrowException) as error:
        raise ServelabError(f"{file}: cannot be read: {error}") from None
    for name, column in zip(names, columns, strict=True):
        values = column if pa.types.is_list(column.type) else column.unique()
        yield from _texts(name, values.to_pylist())


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(str(name), part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(key, part)
    elif isinstance(value, str):
        yield key, value


def record_faults(results: Path, run_ids: Iterable[str], workload_ids: Iterable[str]) -> Iterator[str]:
    """One line per fault of these runs and workloads, beginning with the file."""
    for run_id in run_ids:
        folder = results / "runs" / run_id
        if not folder.is_dir():
            yield f"{folder}: missing"
            continue
        faults = faults_of_run(folder)
        yield from (f"{folder}/{fault}" for fault in faults or _faults_of_sent(folder, results / "workloads"))
    for workload_id in workload_ids:
        folder = results / "workloads" / workload_id
        yield from (f"{folder}/{fault}" for fault in faults_of_workload(folder))


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


def faults_of_run(folder: Path) -> list[str]:
    """Why the folder is not a run of that name: a line per file, which begins with the file's name."""
    return list(_faults_of_records(folder)) or faults_of_seal(folder)


def faults_of_workload(folder: Path) -> list[str]:
    """The same of a workload's requests, which may be left out of an archive."""
    return list(_faults_of_requests(folder))


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
    """Whether the steps of a search for capacity follow from their requests."""
    spec, status = RunSpec.read(folder / "spec.json"), RunStatus.read(folder / "status.json")
    if spec.capacity is None or not status.steps:
        return
    try:
        rounds = by_round(record_array(pq.read_table(folder / "steps.parquet", schema=schemas.RUN_REQUESTS)))
        kept = record_array(pq.read_table(folder / "requests.parquet", schema=schemas.RUN_REQUESTS))
    except (OSError, ValueError, pa.ArrowException) as error:
        yield f"steps.parquet: cannot be read as Parquet: {str(error).splitlines()[0]}"
        return
    for number, step in enumerate(status.steps):
        of_step = rounds.get(number)
        if of_step is None or next_load(spec.capacity, status.steps[:number], spec.incumbent_capacity) != step.load:
            yield f"status.json: step {number} of the search for capacity is not the one that follows"
        elif judge(spec.capacity, step.load, of_step[of_step["phase"] != "settle"]) != step:
            yield f"status.json: step {number} of the search for capacity is not what steps.parquet shows"
    found = find_capacity(spec.capacity, status.steps)
    if found is not None and len(kept) != len(rounds.get(found.step, ())):
        yield "requests.parquet: is not the step of the search for capacity that holds"


def _faults_of_sent(folder: Path, workloads: Path) -> Iterator[str]:
    """Whether a run was sent other requests than those of its specification's workload."""
    workload = workloads / content_id(read_json(folder / "spec.json")["workload"]) / "workload.json"
    sent = read_json(folder / "manifest.json").get("workload", {}).get("requests_sha256")
    if workload.is_file() and sent != read_json(workload)["requests_sha256"]:
        yield "manifest.json: was changed: it was sent other requests than its workload's"


def _faults_of_requests(folder: Path) -> Iterator[str]:
    try:
        described = json.loads((folder / "workload.json").read_bytes())
        if (found := content_id(described["spec"])) != folder.name:
            yield f"workload.json: was changed: it describes workload {found}"
        requests = folder / "requests.parquet"
        if requests.exists():
            if file_sha256(requests) != described["requests_sha256"]:
                yield "requests.parquet: was changed: workload.json has another sha256"
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
