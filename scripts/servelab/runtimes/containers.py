"""What the container runtimes share: an image described by its digest, its environment, and what a container is given.

A small YAML file describes the image; the image stands there by its digest, so the file's sha256 identifies what runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from servelab.config_file import read_config
from servelab.errors import ConfigError, Outage
from servelab.identity import file_sha256
from servelab.runtimes import (
    Environment,
    Image,
    Needs,
    Tool,
    asked_version,
    build_turn,
    read_environment,
    write_environment,
)
from servelab.spec import Strict

INSIDE_HOME = Path("/servelab-home")
_HOME = Path("home")
_ENGINE_PROGRAMS = Path(__file__).parents[1] / "engines"
"""An engine without a command line of its own is started by a program that lies there."""


class ImageDescription(Strict):
    """An engine in a container image."""

    image: str = Field(
        description="The image with its digest, as `registry/name@sha256:…`; a tag alone may be moved and is refused.",
        pattern=r"^[a-z0-9][\w./:-]*@sha256:[0-9a-f]{64}$",
    )
    version: str = Field(description="The tool's own word for its version; asked of it before anything is served.")
    command: str = Field(
        "python3", description="Its Python interpreter inside, or its program where it is none of Python."
    )
    variables: dict[str, str] = Field(
        {}, description="Environment variables that its programs need inside and the image does not set itself."
    )
    flags: list[str] = Field(
        [], description="More flags for the container program, as they are: what the engine's own pages ask for, say."
    )


class Bind(NamedTuple):
    """A file or folder of the host that a container sees."""

    source: Path
    target: Path
    read_only: bool


class ContainerRuntime(ABC):
    """A runtime whose programs are inside an image."""

    name: str

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        """See `Runtime.version`."""
        return read_config(lock, ImageDescription).version

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """See `Runtime.build`; `ConfigError` where the image holds another version than described."""
        described = read_config(lock, ImageDescription)
        marker = folder / "environment.json"
        with build_turn(folder):
            if not marker.exists():
                write_environment(self._built(tool, lock, described, folder), marker)
        environment = read_environment(marker)
        if environment.runtime != self.name:
            was = f"{folder} was made of the same content by runtime {environment.runtime}"
            raise ConfigError(f"{lock}: {was}; give each runtime a file of its own, a comment tells them apart")
        return environment

    def obstacle(self, tool: Tool, lock: Path) -> str | None:
        """See `Runtime.obstacle`; whether its registry gives the image shows when it is pulled."""
        return None if shutil.which(self.name) else f"`{self.name}` is no program here"

    def root(self, pid: int) -> int:
        """See `Runtime.root`."""
        return pid

    @abstractmethod
    def clear(self, started: list[str]) -> None:
        """See `Runtime.clear`."""

    def _built(self, tool: Tool, lock: Path, described: ImageDescription, folder: Path) -> Environment:
        home = folder.absolute() / _HOME
        home.mkdir(exist_ok=True)
        file = self._fetch(described.image, folder.absolute())
        image = Image(reference=described.image, file=file, home=home, flags=described.flags)
        program = Path(described.command)
        command, variables = self._ask(image, tool.version_command(program), described.variables)
        version = asked_version(tool, command, {**os.environ, **variables})
        if version != described.version:
            raise ConfigError(f"{lock}: version: {described.version} is described, {tool.name} in it is {version}")
        return Environment(
            tool=tool.name,
            version=version,
            runtime=self.name,
            python=program,
            lock_sha256=file_sha256(lock),
            packages={},
            variables=described.variables,
            image=image.relative_to(folder.absolute()),
        )

    @abstractmethod
    def _fetch(self, reference: str, folder: Path) -> Path | None:
        """Gets an image, once; the file it is in, if it is one of its own. `Outage` where it cannot be had."""

    @abstractmethod
    def _ask(self, image: Image, command: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        """What to start, and with which variables, so that a command that needs no accelerator runs inside."""


def binds_of(image: Image, needs: Needs) -> list[Bind]:
    """What a server's container sees of the host, each once, at the same place: what it writes can be written to.

    A folder of links (the hub's cache is one) comes with the places they lead to.
    """
    reads = [*needs.reads, *needs.passthrough.mounts, _ENGINE_PROGRAMS]
    reads += [place for folder in needs.reads for place in _linked(folder)]
    writes = {path: Bind(path, path, read_only=False) for path in needs.writes}
    return list({**{path: Bind(path, path, read_only=True) for path in reads}, **writes}.values())


def _linked(folder: Path) -> list[Path]:
    """Where the links in a folder lead."""
    if not folder.is_dir():
        return []
    return sorted({entry.resolve().parent for entry in folder.iterdir() if entry.is_symlink()} - {folder})


def variables_inside(variables: dict[str, str], needs: Needs) -> dict[str, str]:
    """A server's variables where it sees its own devices alone: inside, they are numbered from 0.

    What a study says itself stays as it is.
    """
    told, inside = needs.device.environment(needs.devices), needs.device.environment(needs.renumbered)
    return {name: inside[name] if told.get(name) == value else value for name, value in variables.items()}


def call(command: Sequence[str]) -> None:
    """Runs a container program, its words on standard error; `Outage` if it fails or is not there."""
    try:
        done = subprocess.run(command, stdout=sys.stderr, check=False, env=dict(os.environ))
    except OSError as error:
        raise cannot_start(command[0], error) from error
    if done.returncode:
        raise Outage(f"`{' '.join(command)}` failed (see its lines above)")


def cannot_start(program: str, error: OSError) -> Outage:
    """For a container program that is missing, or none."""
    return Outage(f"cannot start {program}: {error.strerror}; install it, or name another runtime in the study")
