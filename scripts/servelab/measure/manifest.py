"""Makes a run's manifest: what the run was made with, so that its figures can be traced and repeated.

It contains no user's or host's name, except the node's name in a batch system, at `placement.batch.node`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from servelab.assets.asset_files import StoredModel
from servelab.core.identity import file_sha256, run_id
from servelab.core.run_spec import RunSpec
from servelab.engines.runtimes import Environment
from servelab.machine.lease import Lease
from servelab.measure.run_files import (
    GitState,
    ManifestEndpoint,
    ManifestEngine,
    ManifestEnvironment,
    ManifestModel,
    ManifestNode,
    ManifestShell,
    ManifestWorkload,
    RunManifest,
)
from servelab.measure.this_machine import devices_of, this_machine

if TYPE_CHECKING:
    from servelab.measure.server import Launch
    from servelab.measure.server_parts import Parts


def make_manifest(
    spec: RunSpec,
    *,
    environment: Environment,
    leased: Lease,
    launch: Launch,
    model: StoredModel,
    requests: Path,
    endpoint: ManifestEndpoint | None = None,
    parts: Parts | None = None,
) -> RunManifest:
    """The manifest of a run; paths in its commands are relative to the project, and nodes have no addresses."""
    addresses = parts.addresses if parts else ()
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
        command=[_named(_relative(part), addresses) for part in launch.command],
        environment_variables={name: _named(value, addresses) for name, value in launch.variables.items()},
        shell=ManifestShell(
            passed=sorted(launch.shell.passed), needed=sorted(launch.shell.needed), kept_out=launch.shell.kept_out
        ),
        model=ManifestModel(format=model.format, source=model.source, conversion=model.conversion),
        workload=ManifestWorkload(requests_sha256=file_sha256(requests), seed=spec.workload.parameters.get("seed")),
        client=spec.client,
        devices=devices_of(leased),
        placement=leased.placement(),
        machine=this_machine(),
        git=git_state(Path(__file__).parent),
        endpoint=endpoint,
        other_nodes=[
            ManifestNode(
                command=[_named(_relative(word), addresses) for word in part.command],
                environment_variables={
                    name: _named(value, addresses) for name, value in (part.variables or {}).items()
                },
                devices=part.used.devices,
                placement=part.used.placement,
                machine=part.used.machine,
            )
            for part in (parts.parts if parts else ())
        ],
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


def _named(text: str, addresses: Sequence[str]) -> str:
    """The text with `node0`, `node1` … for the nodes' addresses."""
    for rank, address in enumerate(addresses):
        text = re.sub(rf"(?<![\d.]){re.escape(address)}(?![\d.])", f"node{rank}", text)
    return text


def _relative(part: str) -> str:
    """The text with the working directory, which may contain a user's name, removed from paths."""
    return part.replace(f"{Path.cwd()}/", "")
