"""Raw records of a study: the runs that its files name, and whether each is what its name says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.credentials import leaves
from servelab.core.errors import ServelabError
from servelab.core.identity import content_id, file_sha256
from servelab.core.run_spec import RunSpec
from servelab.core.seal import faults_of_seal
from servelab.measure.run_files import RunManifest, RunStatus, read_import
from servelab.metrics.capacity import judge
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import by_round, read_arrow, record_array

_KEY = re.compile(r"(?:^|_)run_ids?(?:_|$)")
_ID = re.compile(r"[0-9a-f]{20}")
_TABLES = {
    "requests.parquet": schemas.RUN_REQUESTS,
    "telemetry.parquet": schemas.TELEMETRY,
    "steps.parquet": schemas.RUN_REQUESTS,
    "answers.parquet": schemas.RUN_ANSWERS,
}


def referenced_runs(files: Iterable[Path]) -> list[str]:
    """All runs that these JSON and Parquet files name in keys and columns like `run_id`, each once.

    An unreadable file is a `ServelabError`.
    """
    contents = (read_json(file) if file.suffix == ".json" else _columns(file) for file in files)
    texts = ((key, value) for content in contents for _, key, value in leaves(content) if isinstance(value, str))
    return list(dict.fromkeys(value for key, value in texts if _KEY.search(key) and _ID.fullmatch(value)))


def read_json(path: Path) -> Any:
    """The content of a JSON file; `ServelabError` names one that is missing or broken."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ServelabError(f"{path}: missing") from None
    except (OSError, ValueError) as error:
        raise ServelabError(f"{path}: cannot be read: {error}") from None


def _columns(file: Path) -> dict[str, list[Any]]:
    try:
        table = read_arrow(file, [name for name in pq.read_schema(file).names if _KEY.search(name)])
    except (OSError, pa.ArrowException) as error:
        raise ServelabError(f"{file}: cannot be read: {error}") from None
    columns = zip(table.column_names, table.columns, strict=True)
    return {name: (each if pa.types.is_list(each.type) else each.unique()).to_pylist() for name, each in columns}


def run_faults(results: Path, run_id: str) -> list[str]:
    """A line per fault of a run and of the requests that it was sent, beginning with the file."""
    folder = results / "runs" / run_id
    if not folder.is_dir():
        return [f"{folder}: missing"]
    return [f"{folder}/{fault}" for fault in faults_of_run(folder) or _faults_of_sent(folder, results / "workloads")]


def log_faults(plans: Iterable[Path], logs: Path) -> Iterator[str]:
    """Logs of a recorded study that differ from those its plans were made from."""
    runs = (run for plan in plans for each in read_json(plan)["candidates"] for run in each["runs"])
    for name, sha256 in (item for run in runs for item in run["spec"]["logs"].items()):
        if not (logs / name).is_file():
            yield f"{logs / name}: missing"
        elif file_sha256(logs / name) != sha256:
            yield f"{logs / name}: was changed since its plan was made"


def faults_of_run(folder: Path) -> list[str]:
    """Why the folder is not a run of that name: a line per file, which begins with the file's name."""
    return list(_faults_of_records(folder)) or faults_of_seal(folder)


def faults_of_workload(folder: Path) -> list[str]:
    """The same of a workload's requests, which may be left out of an archive."""
    try:
        described = json.loads((folder / "workload.json").read_bytes())
        if (found := content_id(described["spec"])) != folder.name:
            return [f"workload.json: was changed: it describes workload {found}"]
        requests = folder / "requests.parquet"
        if not requests.exists():
            return []
        if file_sha256(requests) != described["requests_sha256"]:
            return ["requests.parquet: was changed: workload.json has another sha256"]
        return list(_faults_of_table(requests, schemas.WORKLOAD_REQUESTS))
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        return [f"workload.json: cannot be read: {error}"]


def _faults_of_records(folder: Path) -> Iterator[str]:
    try:
        spec, status = RunSpec.read(folder / "spec.json"), RunStatus.read(folder / "status.json")
        manifest = RunManifest.read(folder / "manifest.json")
        read_import(folder)
    except ServelabError as error:
        yield str(error).removeprefix(f"{folder}/")
        return
    if manifest.run_id != folder.name:
        yield f"manifest.json: is of run {manifest.run_id}"
    searched = spec.capacity is not None and bool(status.steps)
    needed = ("requests.parquet", "steps.parquet") if searched else ("requests.parquet",)
    tables = {name: schema for name, schema in _TABLES.items() if name in needed or (folder / name).exists()}
    faults = [fault for name, schema in tables.items() for fault in _faults_of_table(folder / name, schema)]
    yield from faults
    if spec.capacity is not None and searched and not faults:
        rounds = by_round(record_array(pq.read_table(folder / "steps.parquet", schema=schemas.RUN_REQUESTS)))
        for number, step in enumerate(status.steps):
            sent = rounds.get(number)
            if sent is None or judge(spec.capacity, step.load, sent[sent["phase"] != "settle"]) != step:
                yield f"status.json: step {number} of the search for capacity is not what steps.parquet shows"


def _faults_of_sent(folder: Path, workloads: Path) -> Iterator[str]:
    """Whether a run was sent other requests than those of its specification's workload."""
    workload = workloads / content_id(read_json(folder / "spec.json")["workload"]) / "workload.json"
    sent = read_json(folder / "manifest.json").get("workload", {}).get("requests_sha256")
    if workload.is_file() and sent != read_json(workload)["requests_sha256"]:
        yield "manifest.json: was changed: it was sent other requests than its workload's"


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
