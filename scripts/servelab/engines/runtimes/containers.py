"""Shared by container runtimes: an image's description by digest, its environment, and a container's mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from servelab.core.errors import ConfigError, Outage
from servelab.core.identity import lock_sha256
from servelab.core.result_lock import claim
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import read_config
from servelab.engines.runtimes import (
    Environment,
    Image,
    Needs,
    Runtime,
    Tool,
    asked_version,
    read_environment,
)
from servelab.machine.devices import Device, DeviceKind

INSIDE_HOME = Path("/servelab-home")
_HOME = Path("home")
_ENGINE_PROGRAMS = Path(__file__).parents[1]
"""Contains the launcher of an engine that has no command line."""


class ImageDescription(Strict):
    """An engine in a container image."""

    image: str = Field(
        description="The image with its digest, as `registry/name@sha256:…`; a tag is refused, since it may move.",
        pattern=r"^[a-z0-9][\w./:-]*@sha256:[0-9a-f]{64}$",
    )
    name: str = Field("", description="Your own name for it; two runtimes of one image need different ones.")
    version: str = Field(description="The version that the tool prints; it is checked before the first run.")
    command: str = Field(
        "python3", description="The tool's Python interpreter inside, or its program if it is not written in Python."
    )
    variables: dict[str, str] = Field(
        {}, description="Environment variables that its programs need and the image does not set."
    )
    flags: list[str] = Field(
        [], description="Further flags for the container program, such as those of the engine's docs."
    )


PLANNED_IMAGE = Image(reference="image", file=Path("image.sif"), home=Path("/home"))
"""Stands for an image in a run's identity, which has the description of the real one."""


def planned_needs(device: DeviceKind, count: int) -> Needs:
    """The needs of a server, with placeholders for its devices and without files."""
    devices = [Device(str(number), key=f"device-{number}", name="", cpus=(number,)) for number in range(count)]
    return Needs(reads=(), writes=(), device=device, devices=devices)


class Bind(NamedTuple):
    """A file or folder of the host that is visible in a container."""

    source: Path
    target: Path
    read_only: bool


class ContainerRuntime(Runtime):
    """A runtime whose programs are inside an image."""

    on_host = False

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        return read_config(lock, ImageDescription).version

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """See `Runtime.build`; `ConfigError` if the tool in the image has another version than described."""
        described = read_config(lock, ImageDescription)
        marker = folder / "environment.json"
        with claim(marker):
            if not marker.exists():
                self._built(tool, lock, described, folder).write(marker)
        environment = read_environment(marker)
        if environment.runtime != self.name:
            built = f"runtime {environment.runtime} built {folder} from the same content"
            raise ConfigError(f"{lock}: {built}; give each runtime its own file, with another `name`")
        return environment

    def obstacle(self, tool: Tool, lock: Path) -> str | None:
        """See `Runtime.obstacle`; it does not ask the registry for the image."""
        return None if shutil.which(self.name) else f"there is no program `{self.name}` here"

    def _built(self, tool: Tool, lock: Path, described: ImageDescription, folder: Path) -> Environment:
        home = folder.absolute() / _HOME
        home.mkdir(exist_ok=True)
        file = self._fetch(described.image, folder.absolute())
        image = Image(reference=described.image, file=file, home=home, flags=described.flags)
        program = Path(described.command)
        command, variables = self._ask(image, tool.version_command(program), described.variables)
        version = asked_version(tool, command, {**os.environ, **variables})
        if version != described.version:
            raise ConfigError(f"{lock}: version: the file says {described.version}, {tool.name} in it is {version}")
        return Environment(
            tool=tool.name,
            version=version,
            runtime=self.name,
            python=program,
            lock_sha256=lock_sha256(lock),
            packages={},
            variables=described.variables,
            image=image.relative_to(folder.absolute()),
        )

    @abstractmethod
    def _fetch(self, reference: str, folder: Path) -> Path | None:
        """Fetches an image unless it is present; returns its file, if it is a file. `Outage` if that fails."""

    @abstractmethod
    def _ask(self, image: Image, command: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command and the variables to start, so that a command without accelerators runs inside."""


def binds_of(image: Image, needs: Needs) -> list[Bind]:
    """The host's files in a server's container, at the same paths, with the folders that links in `reads` point to."""
    reads = [*needs.reads, *needs.passthrough.mounts, _ENGINE_PROGRAMS]
    entries = [entry for folder in needs.reads if folder.is_dir() for entry in sorted(folder.iterdir())]
    reads += [entry.resolve().parent for entry in entries if entry.is_symlink()]
    writes = {path: Bind(path, path, read_only=False) for path in needs.writes}
    return list({**{path: Bind(path, path, read_only=True) for path in reads}, **writes}.values())


def variables_inside(variables: dict[str, str], needs: Needs) -> dict[str, str]:
    """A server's variables in a container that sees only its own devices, numbered from 0; a study's own stay."""
    renumbered = [replace(device, index=str(number)) for number, device in enumerate(needs.devices)]
    outside, inside = needs.device.environment(needs.devices), needs.device.environment(renumbered)
    return {name: inside[name] if outside.get(name) == value else value for name, value in variables.items()}


def call(command: Sequence[str]) -> None:
    """Runs a container program with its output on standard error; `Outage` if it fails or is missing."""
    try:
        done = subprocess.run(command, stdout=sys.stderr, check=False, env=dict(os.environ))
    except OSError as error:
        raise cannot_start(command[0], error) from error
    if done.returncode:
        raise Outage(f"`{' '.join(command)}` failed (see its lines above)")


def cannot_start(program: str, error: OSError) -> Outage:
    """The error for a container program that is missing or cannot be run."""
    return Outage(f"cannot start {program}: {error.strerror}; install it, or name another runtime in the study")
