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

from servelab.load import LoadPlan, LoadStats
from servelab.registry import Registry
from servelab.spec import ProtocolSpec

__all__ = ["CLIENTS", "Client", "LoadResult", "LoadStats"]


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
    def packages(self) -> tuple[str, ...]:
        """The package whose version in the lock is the client's release, by any of these names; none for our own."""
        ...

    @property
    def definitions(self) -> Mapping[str, str]:
        """Metrics that its records cannot give by our definition: tag → how they differ."""
        ...

    def version_command(self, python: Path) -> list[str]:
        """Command that prints the client's own word for its release."""
        ...

    def check(self, protocol: ProtocolSpec, *, token_ids: bool) -> None:
        """`ConfigError` that names what it cannot carry out; `token_ids` says that the workload has no text."""
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


def version_in_identity(client: Client, release: str | None) -> str:
    """What a run's identity holds: the version of how we use the client, and its release where it has one."""
    return client.version if release is None else f"{client.version} (release {release})"


CLIENTS: Registry[Client] = Registry("client")
CLIENTS.load(__name__)
