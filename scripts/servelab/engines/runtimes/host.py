"""A program that is already installed: a command on PATH or at a given path, for example in a vendor's container.

A YAML file describes it. The file's content is its identity: its `name` must change when the installation changes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.identity import lock_sha256
from servelab.core.run_spec import Strict
from servelab.core.yaml_file import read_config
from servelab.engines.endpoint import NOT_KNOWN
from servelab.engines.runtimes import RUNTIMES, Environment, Runtime, Tool, asked_version


class HostDescription(Strict):
    """An existing installation."""

    name: str = Field(description="Your own name for this installation, such as the image it came from.")
    version: str = Field(description="The version that the tool prints; it is checked before the first run.")
    command: str = Field(
        description="Its Python interpreter, or its program if it is not written in Python: a name on PATH, or a path."
    )
    variables: list[str] = Field(
        [],
        description="Names of environment variables that its programs need; they are passed on unchanged. Those that "
        "name places of the engine's parts are passed without it, if they are set.",
    )


@dataclass(frozen=True)
class Host(Runtime):
    """The environment's folder contains only `environment.json`."""

    name: str = "host"

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        return read_config(lock, HostDescription).version

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """See `Runtime.build`; `ConfigError` if the command is missing or has another version."""
        described = read_config(lock, HostDescription)
        found = shutil.which(described.command)
        if found is None:
            raise ConfigError(f"{lock}: command: there is no program `{described.command}` here; run in its container?")
        missing = [name for name in described.variables if name not in os.environ]
        if missing:
            raise ConfigError(f"{lock}: variables: {', '.join(missing)} not set here; run what sets them first")
        program = Path(found).absolute()  # links are kept: a virtual environment's python is a link
        version = asked_version(tool, tool.version_command(program))
        if version != described.version:
            raise ConfigError(f"{lock}: version: the file says {described.version}, {tool.name} here is {version}")
        names = dict.fromkeys((*described.variables, *tool.host_variables))
        environment = Environment(
            tool=tool.name,
            version=version,
            runtime=self.name,
            python=program,
            lock_sha256=lock_sha256(lock),
            packages={},
            variables={name: os.environ[name] for name in names if name in os.environ},
        )
        environment.write(folder / "environment.json")
        return environment

    def obstacle(self, tool: Tool, lock: Path) -> str | None:
        """See `Runtime.obstacle`; it builds the environment for a test, which only checks the installation."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                self.build(tool, lock, Path(folder))
            except ServelabError as error:
                return str(error)
        return None


RUNTIMES.register("host", Host())


@dataclass(frozen=True)
class Nothing(Runtime):
    """The environment's folder contains only `environment.json`, with the Python of the workflow."""

    name: str = "none"

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        """See `Runtime.version`; None for a tool that has packages, which would have to be installed."""
        return None if packages else NOT_KNOWN

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """See `Runtime.build`; there is nothing to build."""
        environment = Environment(
            tool=tool.name,
            version=NOT_KNOWN,
            runtime=self.name,
            python=Path(sys.executable),
            lock_sha256=lock_sha256(lock),
            packages={},
        )
        environment.write(folder / "environment.json")
        return environment


RUNTIMES.register("none", Nothing())
