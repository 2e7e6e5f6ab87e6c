"""Runtimes: the places engines and load clients run in. Each is one file that registers itself.

A runtime makes the environment a tool's lock describes and writes `environment.json` beside it, last: where that
file is, the environment is complete.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pydantic import Field, ValidationError

from servelab.devices import Device, DeviceKind, Passthrough
from servelab.errors import Outage
from servelab.files import write_json
from servelab.registry import Registry
from servelab.spec import Strict


class Tool(Protocol):
    """What runs in an environment of its own: an engine or a load client."""

    @property
    def name(self) -> str:
        """Its name in a study."""
        ...

    def version_command(self, python: Path) -> list[str]:
        """Command that prints the tool's own word for its version, in the last line."""
        ...


class Image(Strict):
    """The container image that an environment's programs are inside of. Paths are absolute, but in `environment.json`
    relative to its folder."""

    reference: str
    """Its name and digest."""
    file: Path | None = None
    """The image as a file; None where the container program keeps it."""
    home: Path
    """The folder that is the home folder inside."""
    flags: list[str] = Field(default=[])
    """More flags for the container program."""

    def relative_to(self, folder: Path) -> Image:
        """With paths from that folder on."""
        file = self.file and self.file.relative_to(folder)
        return self.model_copy(update={"file": file, "home": self.home.relative_to(folder)})

    def absolute_in(self, folder: Path) -> Image:
        """With paths that were relative to that folder."""
        return self.model_copy(update={"file": self.file and folder / self.file, "home": folder / self.home})


class Environment(Strict):
    """A complete environment of one tool."""

    tool: str
    version: str
    """The tool's own word."""
    runtime: str
    python: Path
    """Interpreter, or the program of a tool that is none of Python; in `environment.json` relative to its folder."""
    lock_sha256: str
    """sha256 of the file that describes the environment."""
    packages: dict[str, str]
    """Version of each installed package, as far as the runtime can tell."""
    variables: dict[str, str] = Field(default={})
    """Environment variables without which its programs do not work."""
    image: Image | None = None
    """Container image that `python` is inside of."""


@dataclass(frozen=True)
class Needs:
    """What a server needs of the host, wherever it runs."""

    reads: Sequence[Path]
    """Files and folders."""
    writes: Sequence[Path]
    """Folders."""
    device: DeviceKind
    devices: Sequence[Device]
    """Those that it may use."""

    @property
    def passthrough(self) -> Passthrough:
        """What a container must be given to see the devices."""
        return self.device.passthrough(self.devices)

    @property
    def renumbered(self) -> list[Device]:
        """The devices as they are numbered where no others are seen."""
        return [replace(device, index=str(number)) for number, device in enumerate(self.devices)]


class Runtime(Protocol):
    """One kind of place."""

    @property
    def name(self) -> str:
        """Its name in a study."""
        ...

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        """The release of a tool with these packages that `lock` asks for; None if it names none."""
        ...

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """Makes what `lock` describes under `folder`, anew if it is incomplete; `Outage` if that fails."""
        ...

    def obstacle(self, tool: Tool, lock: Path) -> str | None:
        """What would keep this machine from making or entering the environment, as far as that is seen at once."""
        ...

    def enter(
        self, environment: Environment, command: list[str], variables: dict[str, str], needs: Needs
    ) -> tuple[list[str], dict[str, str]]:
        """What to start, and with which variables, so that `command` runs in the environment with `variables`.

        It sees what it needs of the host, at the same place. Raises `Outage` where the environment is gone.
        """
        ...

    def root(self, pid: int) -> int:
        """The process that all of a server's descend from, where `pid` is what was started to `enter`."""
        ...

    def clear(self, started: list[str]) -> None:
        """Strikes off what it still keeps of a server whose processes are gone; `started` is what `enter` gave."""
        ...


class HostRuntime:
    """A runtime whose programs are the host's: what they are to run needs no way in."""

    def enter(
        self, environment: Environment, command: list[str], variables: dict[str, str], needs: Needs
    ) -> tuple[list[str], dict[str, str]]:
        """See `Runtime.enter`."""
        return command, {**environment.variables, **variables}

    def root(self, pid: int) -> int:
        """See `Runtime.root`."""
        return pid

    def clear(self, started: list[str]) -> None:
        """See `Runtime.clear`."""


def asked_version(tool: Tool, command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """The tool's own word for its version: the last line that the command prints; `Outage` if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise Outage(f"{tool.name} does not tell its version: {command[0]}: {error.strerror}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip()[-500:] or f"`{' '.join(command)}` ended with exit code {done.returncode}"
        raise Outage(f"{tool.name} does not tell its version: {said}")
    return lines[-1].strip()


@contextmanager
def build_turn(folder: Path) -> Iterator[None]:
    """One builder of an environment at a time: the next finds what the first has made."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def write_environment(environment: Environment, path: Path) -> None:
    """Writes `environment.json`, whole or not at all."""
    write_json(path, environment.model_dump(mode="json"))


def read_environment(path: Path) -> Environment:
    """An environment by its `environment.json`, its paths made absolute; `Outage` if it is not usable."""
    try:
        environment = Environment.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise Outage(f"{path}: not a complete environment, build it again: {error}") from error
    folder = path.parent.absolute()
    if environment.image is not None:
        image = environment.image.absolute_in(folder)
        if image.file is not None and not image.file.exists():
            raise Outage(f"{path}: its image {image.file.name} is gone; delete the folder and build it again")
        return environment.model_copy(update={"image": image})
    python = folder / environment.python
    if not python.exists():
        raise Outage(f"{path}: its interpreter {environment.python} is gone; delete the folder and build it again")
    return environment.model_copy(update={"python": python})


RUNTIMES: Registry[Runtime] = Registry("runtime")
RUNTIMES.load(__name__)
