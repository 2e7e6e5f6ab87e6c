"""Makes a run's manifest: what the run was made with, so that its figures can be traced and repeated.

It contains no user's or host's name, except the node's name in a batch system, at `placement.batch.node`.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import psutil

from servelab.assets.asset_files import StoredModel
from servelab.core.identity import file_sha256, run_id
from servelab.core.run_spec import RunSpec
from servelab.engines.runtimes import Environment
from servelab.machine.cpu_facts import cpu_model, cpu_settings
from servelab.machine.lease import Lease
from servelab.measure.run_files import (
    GitState,
    Machine,
    ManifestDevice,
    ManifestEndpoint,
    ManifestEngine,
    ManifestEnvironment,
    ManifestModel,
    ManifestShell,
    ManifestWorkload,
    RunManifest,
)
from servelab.measure.server import Launch


def make_manifest(
    spec: RunSpec,
    *,
    environment: Environment,
    leased: Lease,
    launch: Launch,
    model: StoredModel,
    requests: Path,
    endpoint: ManifestEndpoint | None = None,
) -> RunManifest:
    """The manifest of a run; paths in its command are relative to the project."""
    image = environment.image
    return RunManifest(
        run_id=run_id(spec),
        engine=ManifestEngine(name=environment.tool, version=environment.version),
        environment=ManifestEnvironment(
            runtime=environment.runtime,
            image=image and image.reference,
            lock_sha256=environment.lock_sha256,
            packages=environment.packages,
        ),
        command=[_relative(part) for part in launch.command],
        environment_variables=launch.variables,
        shell=ManifestShell(
            passed=sorted(launch.shell.passed), needed=sorted(launch.shell.needed), kept_out=launch.shell.kept_out
        ),
        model=ManifestModel(format=model.format, source=model.source, conversion=model.conversion),
        workload=ManifestWorkload(requests_sha256=file_sha256(requests), seed=spec.workload.parameters.get("seed")),
        client=spec.client,
        devices=[
            ManifestDevice(
                index=d.index, name=d.name, driver=d.driver, memory_bytes=d.memory_bytes, settings=d.settings
            )
            for d in leased.devices
        ],
        placement=leased.placement(),
        machine=Machine(
            cpu=cpu_model(),
            cpu_settings=cpu_settings(),
            cpus=psutil.cpu_count(logical=True),
            cpus_usable=len(os.sched_getaffinity(0)),
            memory_bytes=psutil.virtual_memory().total,
            kernel=platform.release(),
            architecture=platform.machine(),
            python=platform.python_version(),
        ),
        git=git_state(Path(__file__).parent),
        endpoint=endpoint,
    )


def git_state(folder: Path) -> GitState:
    """Commit of the project's checkout and whether tracked files were changed; nulls outside a checkout."""
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return GitState(commit=commit, dirty=None if changes is None else bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _relative(part: str) -> str:
    """The text with the working directory, which may contain a user's name, removed from paths."""
    return part.replace(f"{Path.cwd()}/", "")
