"""Runtimes: where engines and load clients run. Each is one file that registers itself."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import Field

from servelab.core.errors import Outage, ServelabError
from servelab.core.files import JsonFile, JsonPart
from servelab.core.registry import Registry
from servelab.machine.devices import Device, DeviceKind, Passthrough


class Tool(Protocol):
    """A program with its own environment: an engine or a load client."""

    @property
    def name(self) -> str:
        """Its name in a study."""

    @property
    def host_variables(self) -> Sequence[str]:
        """Variables that name the places of its parts; an installation on the host passes those that are set."""

    def version_command(self, python: Path) -> list[str]:
        """Command that prints the tool's version in its last line."""


class Image(JsonPart):
    """The container image with an environment's programs. Paths are absolute, or relative to the folder of
    `environment.json` in that file."""

    reference: str = Field(description="Its name and digest.")
    file: Path | None = Field(None, description="The image as a file; null if the container program stores it.")
    home: Path = Field(description="The folder of the host that is the home folder inside.")
    flags: list[str] = Field([], description="Further flags for the container program.")

    def relative_to(self, folder: Path) -> Image:
        """The image with paths relative to a folder."""
        file = self.file and self.file.relative_to(folder)
        return self.model_copy(update={"file": file, "home": self.home.relative_to(folder)})


class Environment(JsonFile):
    """`environment.json`: a complete environment of one tool."""

    tool: str = Field(description="Engine or load client.")
    version: str = Field(description="The version that the tool itself prints.")
    runtime: str = Field(description="What it runs in.")
    python: Path = Field(
        description="Interpreter, or the program of a tool that is not written in Python; relative to this folder."
    )
    lock_sha256: str = Field(description="sha256 of the file that describes the environment.")
    packages: dict[str, str] = Field(description="Installed package → version; empty if the runtime does not know.")
    variables: dict[str, str] = Field({}, description="Environment variables that its programs need.")
    image: Image | None = Field(None, description="The container image that contains `python`; null if there is none.")


@dataclass(frozen=True)
class Needs:
    """The needs of a server from the host."""

    reads: Sequence[Path]
    """Files and folders that it reads."""
    writes: Sequence[Path]
    """Folders that it writes to."""
    device: DeviceKind
    devices: Sequence[Device]
    """The devices that it may use."""

    @property
    def passthrough(self) -> Passthrough:
        """The arguments that show the devices to a container."""
        return self.device.passthrough(self.devices)


class Runtime(ABC):
    """One runtime; what it does by default is right for programs that run on the host directly."""

    name: str
    """Its name in a study."""
    on_host: ClassVar[bool] = True
    """Whether its programs run on the host directly."""

    @abstractmethod
    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        """The tool's release that `lock` pins, for a tool with these packages; None if it pins none."""

    @abstractmethod
    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """Builds the environment of `lock` in `folder` unless it is complete; `Outage` if that fails."""

    def obstacle(self, tool: Tool, lock: Path) -> str | None:
        """Why this machine cannot build or enter the environment, from a quick check; None if it finds nothing."""
        return None

    def enter(
        self, environment: Environment, command: list[str], variables: dict[str, str], needs: Needs
    ) -> tuple[list[str], dict[str, str]]:
        """The command and the variables to start, so that `command` runs in the environment with `variables`.

        The command sees the files and devices in `needs` at the same paths. `Outage` if the environment is gone.
        """
        return command, {**environment.variables, **variables}

    def container(self, device: DeviceKind, count: int) -> list[str]:
        """The command that starts a container with `count` devices, for a run's identity; empty without one.

        It is that of `enter` with placeholders for what differs between machines, without mounts and flags of images.
        """
        return []

    def root(self, pid: int) -> int:
        """The process that is the ancestor of all processes of a server; `pid` is the process started by `enter`."""
        return pid

    def clear(self, started: list[str]) -> None:
        """Removes what is left of a server whose processes are gone; `started` is the command of `enter`."""
        return


def asked_version(tool: Tool, command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """The version that the tool prints: the last line of the command's output; `Outage` if the command fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise Outage(f"{tool.name} does not print its version: {command[0]}: {error.strerror}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = done.stderr.strip()[-500:] or f"`{' '.join(command)}` ended with exit code {done.returncode}"
        raise Outage(f"{tool.name} does not print its version: {reason}")
    return lines[-1].strip()


def read_environment(path: Path) -> Environment:
    """Reads an `environment.json` and makes its paths absolute; `Outage` if the environment is not usable."""
    try:
        environment = Environment.read(path)
    except ServelabError as error:
        raise Outage(f"{path}: the environment is not complete, build it again: {error}") from error
    folder = path.parent.absolute()
    if environment.image is not None:
        image, file = environment.image, environment.image.file
        image = image.model_copy(update={"file": file and folder / file, "home": folder / image.home})
        if image.file is not None and not image.file.exists():
            raise Outage(f"{path}: its image {image.file.name} is gone; move that folder away, and it is built again")
        return environment.model_copy(update={"image": image})
    python = folder / environment.python
    if not python.exists():
        raise Outage(
            f"{path}: its interpreter {environment.python} is gone; move that folder away, and it is built again"
        )
    return environment.model_copy(update={"python": python})


RUNTIMES: Registry[Runtime] = Registry("runtime")
RUNTIMES.load(__name__)
