"""Load clients: programs that put a load on a server and keep a record of every request.

A client is run as a subprocess, so that what it costs is its own, and what it writes is read into
`schemas.RUN_REQUESTS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from servelab.load import LoadPlan
from servelab.registry import Registry
from servelab.spec import Strict


class LoadStats(Strict):
    """What a round of load cost the client, and how it went; None where the client does not tell."""

    processes: int = 1
    origin_monotonic_s: float | None = None
    """The records' zero on the system's monotonic clock."""
    wall_s: float | None = None
    """From the first request's time until the last has ended."""
    cpu_s: float | None = None
    """CPU time of all its processes over `wall_s`."""
    max_rss_bytes: int | None = None
    """Most memory, all processes together."""
    unread_p99_ms: float | None = None
    """99th percentile, over pieces, of the time a piece lay in the kernel before the client read it."""
    requests_not_sent: int = 0
    """Requests left out because the time to send was over."""
    saturated: bool = False
    """The round was ended because too many requests were in flight."""


@dataclass(frozen=True)
class LoadResult:
    """A round of load."""

    records: pa.Table
    """`schemas.RUN_REQUESTS`, a row for each request that was to be sent."""
    stats: LoadStats


class Client(Protocol):
    """One load client."""

    @property
    def name(self) -> str:
        """Its name in a study."""
        ...

    @property
    def version(self) -> str:
        """Part of a run's identity: raised when what it measures changes, or how its results are read."""
        ...

    @property
    def lock(self) -> str | None:
        """Lock of its environment, `envs/….lock.txt`; None for the workflow's own."""
        ...

    @property
    def definitions(self) -> Mapping[str, str]:
        """Metrics that its records cannot give by our definition: tag → how they differ."""
        ...

    def command(self, plan: LoadPlan, folder: Path, python: Path) -> list[str]:
        """Writes what the client needs into `folder` and gives the command that carries out the plan.

        The command writes into `folder` and exits 0 once every request has a record, failed ones included. `python`
        is the interpreter of the client's environment. `ConfigError` where the client cannot carry out such a plan.
        """
        ...

    def read(self, plan: LoadPlan, folder: Path) -> LoadResult:
        """What the command wrote; `ServelabError` if it is not that."""
        ...


CLIENTS: Registry[Client] = Registry("client")
CLIENTS.load(__name__)
