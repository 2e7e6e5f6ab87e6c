"""No environment at all: the server already runs, and nothing is installed for it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from servelab.core.identity import lock_sha256
from servelab.engines.endpoint import NOT_KNOWN
from servelab.engines.runtimes import RUNTIMES, Environment, Runtime, Tool


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
