"""No known batch system: a workstation, or a container that shows only its own devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from servelab.core.errors import Outage
from servelab.machine.allocations import ALLOCATIONS
from servelab.machine.devices import Device, DeviceKind, named


@dataclass(frozen=True)
class NoBatchSystem:
    """All devices of the machine, or those that the vendor's variable names if it is set."""

    name: str = "none"
    gives_memory: bool = False

    def active(self) -> bool:
        """See `Allocation.active`; used when no other system is active."""
        return False

    def giver(self) -> str:
        """See `Allocation.giver`."""
        return "this machine"

    def given(self, kind: DeviceKind, found: Sequence[Device]) -> list[Device]:
        """See `Allocation.given`."""
        value = os.environ.get(kind.variable) if kind.variable else None
        return list(found) if value is None else named(found, value, str(kind.variable))

    def job_id(self) -> None:
        """See `Allocation.job_id`."""

    def node(self) -> None:
        """See `Allocation.node`."""

    def other_nodes(self) -> list[str]:
        """See `Allocation.other_nodes`."""
        return []

    def address(self, node: str) -> str:
        """See `Allocation.address`; there is no other node."""
        raise Outage(f"no batch system knows a node {node}")

    def on_node(self, node: str, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """See `Allocation.on_node`; there is no other node."""
        raise Outage(f"no batch system knows a node {node}")


ALLOCATIONS.register("none", NoBatchSystem())
