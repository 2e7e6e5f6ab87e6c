"""Balancers spread requests over several servers of one configuration. Each is one file that registers itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from servelab.core.registry import Registry
from servelab.core.run_spec import ServedBalancer

ROUND_ROBIN = "round_robin"
_FOLDER = Path("/folder")


class Balancer:
    """One balancer. These defaults are those of the load client, which sends each request to one of the servers."""

    name: str
    """Its name in a study."""
    is_process: bool = False
    """Whether a process is in front of the servers."""
    image: str | None = None
    """An image with it, for a compose file; None if nobody publishes one."""
    ready_path: str | None = None
    """Answers 200 once it passes requests on; None: the engine's path, which it passes on."""

    def command(self, ports: tuple[int, int], servers: Sequence[int], folder: Path) -> list[str]:
        """The command that serves on a loopback port, in front of servers on others; empty without a process.

        The second of `ports` is for its own metrics.
        """
        return []

    def files(self, ports: tuple[int, int], servers: Sequence[int], folder: Path) -> dict[str, str]:
        """Files that it reads, name in `folder` → content."""
        return {}

    def version_command(self) -> list[str]:
        """Command that prints its release; empty if there is none."""
        return []


BALANCERS: Registry[Balancer] = Registry("balancer")
BALANCERS.load(__name__)


def planned_balancer(name: str, replicas: int) -> ServedBalancer | None:
    """The balancer in a run's identity, with placeholders; None for one server."""
    if replicas == 1:
        return None
    balancer, servers = BALANCERS.get(name), range(1, replicas + 1)
    command, files = (of((0, 0), servers, _FOLDER) for of in (balancer.command, balancer.files))
    return ServedBalancer(name=name, command=tuple(command), files=files)
