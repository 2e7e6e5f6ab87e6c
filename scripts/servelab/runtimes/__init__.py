"""Runtimes: the places engines and load clients run in. Each is one file that registers itself.

A runtime makes the environment a tool's lock describes and writes `environment.json` beside it, last: where that
file is, the environment is complete.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import Field, ValidationError

from servelab.devices import DeviceKind
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
    image: Path | None = None
    """Container image that `python` is inside of; in `environment.json` relative to that file's folder."""


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

    def enter(
        self,
        environment: Environment,
        command: list[str],
        variables: dict[str, str],
        *,
        folders: Sequence[Path],
        device: DeviceKind,
    ) -> tuple[list[str], dict[str, str]]:
        """What to start, and with which variables, so that `command` runs in the environment with `variables`.

        It must see `folders`, at the same place, and the accelerators of that kind.
        """
        ...


class HostRuntime:
    """A runtime whose programs are the host's: what they are to run needs no way in."""

    def enter(
        self,
        environment: Environment,
        command: list[str],
        variables: dict[str, str],
        *,
        folders: Sequence[Path],
        device: DeviceKind,
    ) -> tuple[list[str], dict[str, str]]:
        """See `Runtime.enter`."""
        return command, {**environment.variables, **variables}


def asked_version(tool: Tool, command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """The tool's own word for its version: the last line that the command prints; `Outage` if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise Outage(f"{tool.name} does not tell its version: {done.stderr.strip()[-500:]}")
    return lines[-1].strip()


def write_environment(environment: Environment, path: Path) -> None:
    """Writes `environment.json`, whole or not at all."""
    write_json(path, environment.model_dump(mode="json"))


def read_environment(path: Path) -> Environment:
    """An environment by its `environment.json`, `python` made absolute; `Outage` if it is not usable."""
    try:
        environment = Environment.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise Outage(f"{path}: not a complete environment, build it again: {error}") from error
    folder = path.parent.absolute()
    if environment.image is not None:
        image = folder / environment.image
        if not image.exists():
            raise Outage(f"{path}: its image {environment.image} is gone; delete the folder and build it again")
        return environment.model_copy(update={"image": image})
    python = folder / environment.python
    if not python.exists():
        raise Outage(f"{path}: its interpreter {environment.python} is gone; delete the folder and build it again")
    return environment.model_copy(update={"python": python})


RUNTIMES: Registry[Runtime] = Registry("runtime")
RUNTIMES.load(__name__)
