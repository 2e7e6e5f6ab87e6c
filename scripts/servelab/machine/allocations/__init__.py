"""Allocations: the devices that a batch system gave to a job. Each system is one file that registers itself.

A run uses exactly these devices and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from servelab.core.registry import Registry
from servelab.machine.devices import Device, DeviceKind


class Allocation(Protocol):
    """One batch system, or none."""

    @property
    def name(self) -> str:
        """Its name in a run's manifest."""

    @property
    def gives_memory(self) -> bool:
        """Whether it limits a job's host memory: the same run may then get more memory in another job."""

    def active(self) -> bool:
        """Whether this process runs in one of its jobs."""

    def giver(self) -> str:
        """The source of the devices, for messages, such as `Slurm job 17`."""

    def given(self, kind: DeviceKind, found: Sequence[Device]) -> list[Device]:
        """The devices of the node that this process may use; `Outage` if that is unknown."""

    def job_id(self) -> str | None:
        """The job's id; None outside a job."""

    def node(self) -> str | None:
        """The batch system's name for this node; None outside a job."""

    def other_nodes(self) -> list[str]:
        """The job's other nodes, by the batch system's names, in its order; empty outside a job."""

    def address(self, node: str) -> str:
        """The IP address by which the cluster's machines reach a node; `Outage` if that is unknown."""

    def on_node(self, node: str, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """(command, variables) that run a command on another node of the job, with the job's devices there.

        Its standard streams are those of the command, and it ends with the job.
        """


ALLOCATIONS: Registry[Allocation] = Registry("batch system")
ALLOCATIONS.load(__name__)


def current() -> Allocation:
    """The batch system that this process runs under; `none` if there is no other."""
    return next((system for system in ALLOCATIONS if system.active()), ALLOCATIONS.get("none"))
