"""What the host itself has: a command on its PATH or at a given place, inside a vendor's container say.

Nothing is built. A small YAML file describes it; its sha256 is the environment's identity, so the file's `name` must
change when the installation does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from servelab.config_file import read_config
from servelab.errors import ConfigError, ServelabError
from servelab.identity import file_sha256
from servelab.runtimes import RUNTIMES, Environment, HostRuntime, Tool, asked_version, write_environment
from servelab.spec import Strict


class HostDescription(Strict):
    """An installation that is there already."""

    name: str = Field(description="Your own name of this installation: the image it came from, say.")
    version: str = Field(description="The tool's own word for its version; asked of it before anything is served.")
    command: str = Field(
        description="Its Python interpreter, or its program where it is none of Python: a name on PATH, or a path."
    )
    variables: list[str] = Field(
        [], description="Environment variables, by name, that its programs need and that are passed on as found."
    )


@dataclass(frozen=True)
class Host(HostRuntime):
    """The folder holds `environment.json` alone."""

    name: str = "host"

    def version(self, lock: Path, packages: tuple[str, ...]) -> str | None:
        """See `Runtime.version`."""
        return read_config(lock, HostDescription).version

    def build(self, tool: Tool, lock: Path, folder: Path) -> Environment:
        """See `Runtime.build`; `ConfigError` where the command is not there or is of another version."""
        described = read_config(lock, HostDescription)
        found = shutil.which(described.command)
        if found is None:
            raise ConfigError(f"{lock}: command: `{described.command}` is no program here; is its container running?")
        missing = [name for name in described.variables if name not in os.environ]
        if missing:
            raise ConfigError(f"{lock}: variables: {', '.join(missing)} not set here; source its set_env.sh first")
        program = Path(found).absolute()  # no link is followed: a virtual environment's python is one
        version = asked_version(tool, tool.version_command(program))
        if version != described.version:
            raise ConfigError(f"{lock}: version: {described.version} is described, {tool.name} here is {version}")
        environment = Environment(
            tool=tool.name,
            version=version,
            runtime=self.name,
            python=program,
            lock_sha256=file_sha256(lock),
            packages={},
            variables={name: os.environ[name] for name in described.variables},
        )
        write_environment(environment, folder / "environment.json")
        return environment

    def obstacle(self, tool: Tool, lock: Path) -> str | None:
        """See `Runtime.obstacle`; to build is to look whether all is there."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                self.build(tool, lock, Path(folder))
            except ServelabError as error:
                return str(error)
        return None


RUNTIMES.register("host", Host())
