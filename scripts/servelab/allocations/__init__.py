"""Allocations: what a batch system gave a job of the machine it runs on. Each system is one file that registers itself.

A run takes exactly that, and nothing beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from servelab.devices import Device, DeviceKind
from servelab.registry import Registry


class Allocation(Protocol):
    """One batch system, or none."""

    @property
    def name(self) -> str:
        """Its name in a manifest."""
        ...

    @property
    def gives_memory(self) -> bool:
        """Whether it gives a job a share of the host memory: another job may then get more for the same run."""
        ...

    def active(self) -> bool:
        """Whether this process runs in a job of it."""
        ...

    def giver(self) -> str:
        """Who gives devices here, for messages: `Slurm job 17`, say."""
        ...

    def given(self, kind: DeviceKind, found: Sequence[Device]) -> list[Device]:
        """Those of a node's devices that this process may use; `Outage` if that cannot be told."""
        ...

    def job_id(self) -> str | None:
        """The job's own name for it."""
        ...

    def node(self) -> str | None:
        """The batch system's name of this node."""
        ...


ALLOCATIONS: Registry[Allocation] = Registry("batch system")
ALLOCATIONS.load(__name__)


def current() -> Allocation:
    """The batch system that this process runs under; `none` elsewhere."""
    return next((system for system in ALLOCATIONS if system.active()), ALLOCATIONS.get("none"))
