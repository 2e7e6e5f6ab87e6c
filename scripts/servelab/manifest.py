"""Manifest: what a run was made with, so that its figures can be traced and repeated.

No user's or host's name is in it, but for a batch system's name of the node, at `placement.batch.node`.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from servelab.devices.cpu import cpu_model
from servelab.identity import file_sha256, run_id
from servelab.lease import Lease
from servelab.runtimes import Environment
from servelab.spec import RunSpec


def make_manifest(
    spec: RunSpec,
    *,
    environment: Environment,
    leased: Lease,
    command: Sequence[str],
    variables: Mapping[str, str],
    model: Mapping[str, Any],
    requests: Path,
) -> dict[str, Any]:
    """The manifest of a run, as JSON; `model` is the content of `model.json`, paths are relative to the project."""
    return {
        "run_id": run_id(spec),
        "engine": {"name": environment.tool, "version": environment.version},
        "environment": {
            "runtime": environment.runtime,
            "image": environment.image.reference if environment.image else None,
            "lock_sha256": environment.lock_sha256,
            "packages": environment.packages,
        },
        "command": [_relative(part) for part in command],
        "environment_variables": dict(variables),
        "model": {key: model[key] for key in ("format", "source", "conversion") if key in model},
        "workload": {"requests_sha256": file_sha256(requests), "seed": spec.workload.parameters.get("seed")},
        "client": spec.client.model_dump(),
        "devices": [
            {"index": d.index, "name": d.name, "driver": d.driver, "memory_bytes": d.memory_bytes}
            for d in leased.devices
        ],
        "placement": leased.placement(),
        "machine": {
            "cpu": cpu_model(),
            "cpus": psutil.cpu_count(logical=True),
            "cpus_usable": len(os.sched_getaffinity(0)),
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
        },
        "git": git_state(Path(__file__).parent),
    }


def git_state(folder: Path) -> dict[str, Any]:
    """Commit of the project's checkout and whether tracked files were changed; nulls outside a checkout."""
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _relative(part: str) -> str:
    """Paths below the working directory without it, which may hold a user's name."""
    return part.replace(f"{Path.cwd()}/", "")
