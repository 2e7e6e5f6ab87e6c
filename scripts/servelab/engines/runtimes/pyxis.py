"""A container on a Slurm cluster with Pyxis: a step of the run's own job, with the job's devices."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from servelab.core.errors import Outage
from servelab.engines.runtimes import RUNTIMES, Environment, Image, Needs, Tool
from servelab.engines.runtimes.containers import (
    INSIDE_HOME,
    PLANNED_IMAGE,
    ContainerRuntime,
    binds_of,
    call,
    planned_needs,
)
from servelab.machine.devices import DeviceKind

_IMAGE = "image.sqsh"
_STEP = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mem=0")
_CONTAINER = ("--no-container-mount-home", "--no-container-entrypoint", f"--container-workdir={INSIDE_HOME}")


@dataclass(frozen=True)
class Pyxis(ContainerRuntime):
    """The image is one file, made by Enroot; a home folder beside it holds the engine's caches."""

    name: str = "pyxis"

    def obstacle(self, tool: Tool, lock: Path) -> str | None:
        missing = [program for program in ("srun", "enroot") if shutil.which(program) is None]
        return f"there is no program `{missing[0]}` here" if missing else None

    def enter(
        self, environment: Environment, command: list[str], variables: dict[str, str], needs: Needs
    ) -> tuple[list[str], dict[str, str]]:
        """See `Runtime.enter`; `Outage` outside a job of Slurm. Devices have the same numbers inside."""
        assert environment.image is not None
        job = os.environ.get("SLURM_JOB_ID")
        if job is None:
            raise Outage("runtime pyxis needs a Slurm job: start with `--profile slurm`, or with `--here` in `salloc`")
        image = environment.image
        given = {**environment.variables, **variables, "HOME": str(INSIDE_HOME)}
        mounts = [f"{bind.source}:{bind.target}{':ro' if bind.read_only else ''}" for bind in binds_of(image, needs)]
        step = self._step(image, mounts, given)
        named = [f"--jobid={job}", f"--job-name=servelab-{secrets.token_hex(8)}"]
        clients = {name: value for name, value in os.environ.items() if name in ("PATH", "SLURM_CONF")}
        return [step[0], *named, *step[1:], *command], {**clients, **given}

    def container(self, device: DeviceKind, count: int) -> list[str]:
        needs = planned_needs(device, count)
        mounts = [f"{path}:{path}:ro" for path in needs.passthrough.mounts]
        return self._step(PLANNED_IMAGE, mounts, {})

    def clear(self, started: list[str]) -> None:
        """See `Runtime.clear`; a step outlives an `srun` that was killed."""
        job, name = (started[place].partition("=")[2] for place in (1, 2))
        listed = ["squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i %j"]
        found = subprocess.run(listed, capture_output=True, text=True, check=False).stdout
        steps = [line.split()[0] for line in found.splitlines() if line.endswith(f" {name}")]
        if steps:
            subprocess.run(["scancel", "--signal=KILL", *steps], capture_output=True, check=False)

    def _step(self, image: Image, mounts: list[str], variables: dict[str, str]) -> list[str]:
        mounted = ",".join([f"{image.home}:{INSIDE_HOME}", *mounts])
        named = [f"--container-env={','.join(sorted(variables))}"] if variables else []
        return [
            *_STEP,
            f"--container-image={image.file}",
            f"--container-mounts={mounted}",
            *_CONTAINER,
            *named,
            *image.flags,
        ]

    def _fetch(self, reference: str, folder: Path) -> Path | None:
        name, _, digest = reference.partition("@")
        registry, _, path = name.partition("/")
        if "." not in registry or registry == "docker.io":
            registry, path = "", name.removeprefix("docker.io/")
        source = f"docker://{registry}{'#' if registry else ''}{path}:{digest}"
        (folder / _IMAGE).unlink(missing_ok=True)
        call(["enroot", "import", "--output", str(folder / _IMAGE), source])
        return folder / _IMAGE

    def _ask(self, image: Image, command: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """Enroot itself: the image is asked where the environment is built, which may be outside a job."""
        mount = ["--mount", f"{image.home}:{INSIDE_HOME}"]
        named = [part for name in variables for part in ("--env", name)]
        return ["enroot", "start", *mount, *named, str(image.file), *command], variables


RUNTIMES.register("pyxis", Pyxis())
