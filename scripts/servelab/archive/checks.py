"""Whether a study's records belong together: nothing is missing, and each is what its name or another file says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from servelab.deciding_pair import SIDES
from servelab.errors import ServelabError
from servelab.identity import content_id, file_sha256

RUN_FILES = ("manifest.json", "requests.parquet", "spec.json", "status.json")


def run_faults(results: Path, run_ids: Iterable[str]) -> Iterator[str]:
    """What is wrong with runs in `results/runs`, a line each: missing files, another specification than the name's."""
    for run_id in run_ids:
        folder = results / "runs" / run_id
        yield from _folder_faults(folder)
        if (spec := _read(folder / "spec.json")) is not None and content_id(spec) != run_id:
            yield f"{folder}/spec.json: was changed: it is the specification of run {content_id(spec)}"


def pair_faults(results: Path, pair_ids: Iterable[str]) -> Iterator[str]:
    """The same for pairs in `results/pairs`."""
    for pair_id in pair_ids:
        folder = results / "pairs" / pair_id
        pair = _read(folder / "pair.json")
        if pair is None or _read(folder / "status.json") is None:
            yield f"{folder}: not a complete pair: pair.json or status.json is missing or broken"
            continue
        if content_id(pair) != pair_id:
            yield f"{folder}/pair.json: was changed: it is the specification of pair {content_id(pair)}"
        for side in SIDES:
            yield from _folder_faults(folder / side)
            if _read(folder / side / "spec.json") != pair[side]:
                yield f"{folder}/{side}/spec.json: was changed: pair.json has another specification"


def workload_faults(results: Path, workload_ids: Iterable[str]) -> Iterator[str]:
    """The same for requests in `results/workloads`; requests that are not there are not missed."""
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
    """Runs that were sent other requests than the workload of their specification holds."""
    for run_id in run_ids:
        folder = results / "runs" / run_id
        spec, manifest = _read(folder / "spec.json"), _read(folder / "manifest.json")
        if spec is None or not manifest:
            continue  # told elsewhere, or nothing was sent
        workload = _read(results / "workloads" / content_id(spec["workload"]) / "workload.json")
        sent = manifest.get("workload", {}).get("requests_sha256")
        if workload is not None and sent != workload["requests_sha256"]:
            yield f"{folder}/manifest.json: was changed: it was sent other requests than its workload's"


def lock_faults(results: Path, run_ids: Iterable[str], locks: Iterable[Path]) -> Iterator[str]:
    """Runs whose engine was built from a lock that is none of these."""
    known = {file_sha256(lock) for lock in locks}
    for run_id in run_ids:
        spec = _read(results / "runs" / run_id / "spec.json")
        if spec is not None and spec["engine"]["environment_sha256"] not in known:
            engine = spec["engine"]
            yield (
                f"{results}/runs/{run_id}: the lock of {engine['name']} {engine['version']} was changed: "
                f"none has sha256 {engine['environment_sha256']}"
            )


def log_faults(plans: Iterable[Path], logs: Path) -> Iterator[str]:
    """Logs of a recorded study that are not those its plans were made from."""
    for plan in plans:
        for candidate in json.loads(plan.read_bytes())["candidates"]:
            for run in candidate["runs"]:
                for name, sha256 in run["spec"]["logs"].items():
                    if not (logs / name).is_file():
                        yield f"{logs / name}: missing"
                    elif file_sha256(logs / name) != sha256:
                        yield f"{logs / name}: was changed since {plan} was made"


def raise_faults(faults: Iterable[str], fix: str) -> None:
    """A `ServelabError` of all faults, the first of them in full."""
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
    """JSON content; None where there is none."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
