"""Allocations: the devices that a batch system gave to a job. Each system is one file that registers itself.

A run uses exactly these devices and no others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from servelab.core.errors import Outage
from servelab.core.registry import Registry
from servelab.machine.devices import Device, DeviceKind, named


class Allocation:
    """One batch system. The defaults are those of a machine without one: a workstation, or a container."""

    name = "none"
    """Its name in a run's manifest."""
    gives_memory = False
    """Whether it limits a job's host memory: the same run may then get more memory in another job."""

    def active(self) -> bool:
        """Whether this process runs in one of its jobs."""
        return False

    def giver(self) -> str:
        """The source of the devices, for messages, such as `Slurm job 17`."""
        return "this machine"

    def given(self, kind: DeviceKind, found: Sequence[Device]) -> list[Device]:
        """The devices of the node that this process may use; `Outage` if that is unknown.

        By default all of them, or those that the vendor's variable names.
        """
        value = os.environ.get(kind.variable) if kind.variable else None
        return list(found) if value is None else named(found, value, str(kind.variable))

    def job_id(self) -> str | None:
        """The job's id; None outside a job."""
        return None

    def node(self) -> str | None:
        """The batch system's name for this node; None outside a job."""
        return None

    def other_nodes(self) -> list[str]:
        """The job's other nodes, by the batch system's names, in its order; empty outside a job."""
        return []

    def address(self, node: str) -> str:
        """The IP address by which the cluster's machines reach a node; `Outage` if that is unknown."""
        raise Outage(f"no batch system knows a node {node}")

    def on_node(self, node: str, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """(command, variables) that run a command on another node of the job, with the job's devices there.

        Its standard streams are those of the command, and it ends with the job.
        """
        raise Outage(f"no batch system knows a node {node}")


ALLOCATIONS: Registry[Allocation] = Registry("batch system")
ALLOCATIONS.register("none", Allocation())
ALLOCATIONS.load(__name__)


def current() -> Allocation:
    """The batch system that this process runs under; `none` if there is no other."""
    return next((system for system in ALLOCATIONS if system.active()), ALLOCATIONS.get("none"))
