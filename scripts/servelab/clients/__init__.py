"""Load clients: programs that put a load on a server and keep a record of every request.

A client is run as a subprocess, so that what it costs is its own, and read into `schemas.RUN_REQUESTS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa

from servelab.registry import Registry


class Client(Protocol):
    """One load client."""

    @property
    def name(self) -> str:
        """Its name in a study."""
        ...

    @property
    def version(self) -> str:
        """Part of a run's identity: raised when what it measures changes."""
        ...

    def command(self, load_path: Path, output_path: Path) -> list[str]:
        """Command that carries out the `load.LoadPlan` at `load_path` and writes `output_path`.

        It exits 0 once every request has a record, failed ones included.
        """
        ...

    def read(self, output_path: Path) -> pa.Table:
        """What the command wrote, with the columns of `schemas.RUN_REQUESTS`; `ServelabError` if it is not that."""
        ...


CLIENTS: Registry[Client] = Registry("client")
CLIENTS.load(__name__)
