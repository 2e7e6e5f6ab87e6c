"""A container of a registry's image, by Apptainer: one process tree with the workflow, no daemon.

A small YAML file describes it; the image stands there by its digest, so the file's sha256 identifies what runs. The
container shares the host's network, and servers listen on 127.0.0.1 alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from servelab.config_file import read_config
from servelab.devices import DeviceKind
from servelab.errors import ConfigError, Outage
from servelab.identity import file_sha256
from servelab.runtimes import RUNTIMES, Environment, Tool, asked_version, read_environment, write_environment
from servelab.spec import Strict

_IMAGE, _HOME = Path("image.sif"), "home"
_INSIDE_HOME = "/servelab-home"


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


@dataclass(frozen=True)
class Apptainer:
    """The image becomes one file; a home folder beside it takes what the engine caches."""

    name: str = "apptainer"

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        """See `Runtime.version`."""
        return read_config(lock, ImageDescription).version

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """See `Runtime.build`; `ConfigError` where the image holds another version than described."""
        described = read_config(lock, ImageDescription)
        marker = folder / "environment.json"
        if marker.exists():
            return read_environment(marker)
        (folder / _HOME).mkdir(parents=True, exist_ok=True)
        _run(["apptainer", "pull", "--force", str(folder / _IMAGE), f"docker://{described.image}"])
        program = Path(described.command)
        inside = [*_exec(folder.absolute()), str(folder.absolute() / _IMAGE), *tool.version_command(program)]
        version = asked_version(tool, inside)
        if version != described.version:
            raise ConfigError(f"{lock}: version: {described.version} is described, {tool.name} in it is {version}")
        environment = Environment(
            tool=tool.name,
            version=version,
            runtime=self.name,
            python=program,
            lock_sha256=file_sha256(lock),
            packages={},
            image=_IMAGE,
        )
        write_environment(environment, marker)
        return read_environment(marker)

    def enter(
        self,
        environment: Environment,
        command: list[str],
        variables: dict[str, str],
        *,
        folders: Sequence[Path],
        device: DeviceKind,
    ) -> tuple[list[str], dict[str, str]]:
        """See `Runtime.enter`; the container inherits nothing but `variables`, which Apptainer takes by prefix."""
        assert environment.image is not None
        binds = [part for folder in dict.fromkeys(folders) for part in ("--bind", f"{folder}:{folder}")]
        base = [*_exec(environment.image.parent), *device.apptainer_flags, *binds]
        inside = {f"APPTAINERENV_{name}": value for name, value in {**environment.variables, **variables}.items()}
        return [*base, str(environment.image), *command], inside


def _exec(folder: Path) -> list[str]:
    """Without the user's own home, so that nothing installed there is found inside."""
    return ["apptainer", "exec", "--cleanenv", "--home", f"{folder / _HOME}:{_INSIDE_HOME}"]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, stdout=sys.stderr, check=False, env=dict(os.environ))
    except OSError as error:
        raise Outage(f"cannot start {command[0]}: {error.strerror}") from error
    if done.returncode:
        raise Outage(f"`{' '.join(command)}` failed (see its lines above)")


RUNTIMES.register("apptainer", Apptainer())
