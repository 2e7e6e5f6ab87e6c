"""Folders of runs: complete or absent, even if several processes on several nodes make the same one.

Each attempt works in its own folder beside the final one, `.<id>.<host>.<pid>.<start>.part`, and renames it to `<id>`
at the end. If there are several attempts, the first to finish wins and the others use its result.

A folder whose files are not those of its seal is moved to `set-aside/` beside it, so that its run is measured again and
nothing is lost.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from servelab.core.errors import Outage
from servelab.core.files import JsonFile, move_folder
from servelab.core.identity import file_sha256, run_id
from servelab.core.processes import stop_all
from servelab.core.result_lock import claim, is_claimed
from servelab.core.seal import faults_of_seal
from servelab.machine.lease import Lease
from servelab.measure.inputs import RunInputs, devices_of, this_machine
from servelab.measure.run_files import (
    GitState,
    ManifestEngine,
    ManifestEnvironment,
    ManifestModel,
    ManifestReplica,
    ManifestShell,
    ManifestWorkload,
    RunManifest,
)

if TYPE_CHECKING:
    from servelab.measure.replicas import Replicas
    from servelab.measure.server import Server
    from servelab.measure.visited import VisitedServer

Status = TypeVar("Status", bound=JsonFile)
_ATTEMPT = re.compile(r"\.(?P<id>[0-9a-f]{20})\.(?P<host>.+)\.(?P<pid>\d+)\.(?P<start>\d+)\.part")
_JOB = re.compile(r"\.[0-9a-f]{32}\.(?P<host>.+)\.(?P<pid>\d+)\.job")
SET_ASIDE = "set-aside"
"""Folder of broken runs, and of those that were measured again."""
_FORGOTTEN_S = 24 * 3600
"""An attempt on another node that has written nothing for this long has ended: its time limits are far shorter."""


@dataclass(frozen=True)
class Attempt:
    """A process's work on a run that is not complete."""

    folder: Path
    id: str
    host: str
    pid: int
    started_s: int
    """Unix time."""

    @property
    def is_alive(self) -> bool:
        """Whether it still runs: judged by its claim on this host, by its last write on another one."""
        if self.host == os.uname().nodename:
            return is_claimed(self.folder.with_name(self.id))
        return time.time() - _written_s(self.folder) < _FORGOTTEN_S


def _written_s(folder: Path) -> float:
    """Unix time of the last write to a folder or a file in it; 0 if it has just been removed."""
    try:
        return max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
    except OSError:
        return 0.0


def attempts(parent: Path) -> list[Attempt]:
    """Attempts at runs in a folder, including those whose process has died."""
    names = sorted(entry.name for entry in os.scandir(parent)) if parent.is_dir() else []
    found = [(name, _ATTEMPT.fullmatch(name)) for name in names]
    return [
        Attempt(parent / name, match["id"], match["host"], int(match["pid"]), int(match["start"]))
        for name, match in found
        if match
    ]


def read_status(folder: Path, kind: type[Status]) -> Status | None:
    """The status of a complete run; None if there is none. `ServelabError` if it cannot be read."""
    path = folder / "status.json"
    return kind.read(path) if path.exists() else None


def make_once(output: Path, work_in: Callable[[Path], None], kind: type[Status]) -> Status:
    """Returns the status of the run in `output`; makes it by `work_in(temporary folder)` if it is missing or broken.

    If another process is making it, waits and keeps the first result. `output` appears complete or not at all. Raises
    `Outage` on a full disk.
    """
    with claim(output):
        _set_aside_if_broken(output)
        if status := read_status(output, kind):
            say_kept(output.name)
            return status
        with _attempt(output) as folder:
            work_in(folder)
            was_first = move_folder(folder, output)
        if (status := read_status(output, kind)) is None:
            raise Outage(f"{output} is in the way and is not complete; run again, and it is set aside")
        if not was_first:
            print(f"{output.name}: another workflow was first, its result is kept", file=sys.stderr, flush=True)
        return status


def set_aside_if_broken(folder: Path) -> None:
    """Moves a run's folder to `set-aside/` and reports why, unless its files are those of its seal, or it is empty."""
    with claim(folder):
        _set_aside_if_broken(folder)


def why_broken(folder: Path) -> str | None:
    """The faults of the run in a folder that is not empty, as one line; None if it has none."""
    faults = faults_of_seal(folder)
    return describe_faults(folder.name, faults) if faults else None


def _set_aside_if_broken(folder: Path) -> None:
    if folder.exists() and not is_empty(folder) and (why := why_broken(folder)) is not None:
        move_aside(folder, why)


def move_aside(folder: Path, why: str) -> None:
    """Moves a run's folder to `set-aside/`, beside those that were moved earlier, and reports why."""
    aside = folder.with_name(SET_ASIDE)
    to = aside / f"{folder.name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    try:
        aside.mkdir(exist_ok=True)
        folder.rename(to)
    except OSError as error:
        raise Outage(f"cannot move {folder} to {to}: {error.strerror}") from error
    print(f"{why}; moved to {to}", file=sys.stderr, flush=True)


def describe_faults(run_id: str, faults: Sequence[str]) -> str:
    """The faults of a run, as one line."""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"run {run_id} is broken: {faults[0]}{more}"


def is_empty(folder: Path) -> bool:
    """Whether it is a folder with nothing in it, as Snakemake makes it before a job."""
    return folder.is_dir() and not any(folder.iterdir())


def say_kept(run_id: str) -> None:
    """Says on standard error that a run is not measured because it is complete."""
    print(f"{run_id}: another workflow has measured it; its result is kept", file=sys.stderr, flush=True)


@contextmanager
def job_folder(runs: Path, job_id: str) -> Iterator[Path]:
    """Yields a folder in `runs` for the servers of a job, and removes it at the end, after every process of the job.

    First removes those of jobs that were killed. Raises `Outage` on a full disk.
    """
    host = os.uname().nodename
    folder = runs / f".{job_id}.{host}.{os.getpid()}.job"
    try:
        for left in runs.glob(".*.job"):
            if (found := _JOB.fullmatch(left.name)) and _has_ended(left, found["host"], int(found["pid"])):
                shutil.rmtree(left, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        raise Outage(f"cannot write to {folder}: {error}") from error
    finally:
        stop_all()
        shutil.rmtree(folder, ignore_errors=True)


def _has_ended(folder: Path, host: str, pid: int) -> bool:
    """Whether the process that made a folder has ended; a killed one has, though its parent never waits for it."""
    if host != os.uname().nodename:
        return time.time() - _written_s(folder) > _FORGOTTEN_S
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def _attempt(output: Path) -> Iterator[Path]:
    """Yields a folder to make `output` in and removes it at the end; first removes what dead attempts left."""
    host = os.uname().nodename
    folder = output.with_name(f".{output.name}.{host}.{os.getpid()}.{int(time.time())}.part")
    try:
        for other in attempts(output.parent):
            # this process has the claim, so no other attempt on this host is alive
            if other.id == output.name and (other.host == host or not other.is_alive):
                shutil.rmtree(other.folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        raise Outage(f"cannot write the results of {output.name}: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_manifest(inputs: RunInputs, leased: Lease, server: Server | VisitedServer | Replicas) -> RunManifest:
    """The manifest of a run; paths in its commands are relative to the project, and nodes have no addresses."""
    spec, environment, model, launch, parts = inputs.spec, inputs.environment, inputs.model, server.launch, server.parts
    addresses = parts.addresses if parts else ()
    return RunManifest(
        run_id=run_id(spec),
        engine=ManifestEngine(name=environment.tool, version=environment.version),
        environment=ManifestEnvironment(
            runtime=environment.runtime,
            image=environment.image and environment.image.reference,
            lock_sha256=environment.lock_sha256,
            packages=environment.packages,
        ),
        **_started(launch.command, launch.variables, addresses),
        shell=ManifestShell(
            passed=sorted(launch.shell.passed), needed=sorted(launch.shell.needed), kept_out=launch.shell.kept_out
        ),
        model=ManifestModel(format=model.format, source=model.source, conversion=model.conversion),
        workload=ManifestWorkload(
            requests_sha256=file_sha256(inputs.requests), seed=spec.workload.parameters.get("seed")
        ),
        client=spec.client,
        devices=devices_of(leased),
        placement=leased.placement(),
        machine=this_machine(),
        git=git_state(Path(__file__).parent),
        endpoint=server.endpoint,
        other_nodes=[
            part.used.model_copy(update=_started(part.command, part.variables or {}, addresses))
            for part in (parts.parts if parts else ())
        ],
        replicas=[
            ManifestReplica(**_started(each.launch.command, each.launch.variables, ()), cpus=sorted(each.cpus))
            for each in server.replicas
        ],
        balancer=server.balancer,
    )


def git_state(folder: Path) -> GitState:
    """Commit of the project's checkout and whether tracked files were changed; nulls outside a checkout."""
    commit = git(folder, "rev-parse", "HEAD")
    changes = git(folder, "status", "--porcelain", "--untracked-files=no")
    return GitState(commit=commit, dirty=None if changes is None else bool(changes))


def git(folder: Path, *arguments: str) -> str | None:
    """The output of git; None if it fails or is missing."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _started(command: Sequence[str], variables: Mapping[str, str], addresses: Sequence[str]) -> dict[str, Any]:
    """A command and its variables as a manifest has them, without the working directory: it may have a user's name."""
    here = f"{Path.cwd()}/"
    return {
        "command": [_named(word.replace(here, ""), addresses) for word in command],
        "environment_variables": {name: _named(value, addresses) for name, value in variables.items()},
    }


def _named(text: str, addresses: Sequence[str]) -> str:
    """The text with `node0`, `node1` … for the nodes' addresses."""
    for rank, address in enumerate(addresses):
        text = re.sub(rf"(?<![\d.]){re.escape(address)}(?![\d.])", f"node{rank}", text)
    return text
