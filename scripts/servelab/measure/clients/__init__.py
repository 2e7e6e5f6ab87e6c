"""Load clients: programs that send load to a server and keep a record of every request.

A client runs as a subprocess, so that its cost is separate; its results are read into `schemas.RUN_REQUESTS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from servelab.core.registry import Registry
from servelab.core.run_spec import ClientSpec, ProtocolSpec
from servelab.measure.load import LoadPlan, LoadResult


class Client(ABC):
    """One load client."""

    name: str
    """Its name in a study."""
    version: str = "1"
    """Part of a run's identity; increased when what it measures changes, or how we read its results."""
    packages: tuple[str, ...] = ()
    """Possible names of the package whose version in the lock is the client's release; empty for our own client."""
    takes_natural_stops: bool = False
    """Whether answers may end by themselves."""
    definitions: ClassVar[Mapping[str, str]] = {}
    """Metrics that differ from our definition with this client's records: tag → how they differ."""
    host_variables: tuple[str, ...] = ()

    @property
    def lock(self) -> str | None:
        """Lock of its environment, `envs/….lock.txt`; None if it uses the workflow's environment."""
        return None

    @abstractmethod
    def version_command(self, python: Path) -> list[str]:
        """Command that prints the client's release."""

    def check(self, protocol: ProtocolSpec, *, token_ids: bool, turns: bool) -> None:
        """Raises `ConfigError` for what it does not support.

        `token_ids` means that the workload has no text, `turns` that its requests have several messages.
        """
        return

    @abstractmethod
    def command(self, plan: LoadPlan, folder: Path, python: Path) -> list[str]:
        """Writes what the client needs into `folder` and returns the command that sends the plan's requests.

        The command writes into `folder` and exits 0 when every request has a record, failed ones included. `python`
        is the interpreter of the client's environment. `ConfigError` if the client does not support the plan.
        """

    def has_ended(self, returncode: int, folder: Path) -> bool:
        """Whether the command ended in order, so that `folder` has results."""
        return returncode == 0

    def out_of_time(self, plan: LoadPlan) -> LoadResult | None:
        """The result of a round that did not end in time; None if the client ends rounds itself, and so is at fault."""
        return None

    @abstractmethod
    def read(self, plan: LoadPlan, folder: Path) -> LoadResult:
        """Reads what the command wrote; `ServelabError` if that is not a complete result."""


def version_in_identity(client: Client, release: str | None) -> str:
    """The client in a run's identity: the version of how we use it, and its release if it has one."""
    return client.version if release is None else f"{client.version} (release {release})"


def client_of(client: Client) -> ClientSpec:
    """A client that uses the workflow's environment, in a run's identity."""
    return ClientSpec(name=client.name, version=version_in_identity(client, None), environment_sha256=None)


CLIENTS: Registry[Client] = Registry("client")
CLIENTS.load(__name__)
