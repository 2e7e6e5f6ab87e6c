"""Accelerators of another machine: those of a server that already runs there. They are never looked at or reserved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servelab.machine.devices import DEVICES, Device, Passthrough
from servelab.machine.topology import Topology

_MOST = 64
"""Accelerators that one server may have."""


@dataclass(frozen=True)
class Elsewhere:
    """As many accelerators as a study says, with the name that it gives them."""

    name: str = "elsewhere"
    variable: None = None
    gres: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def find(self) -> list[Device]:
        """See `DeviceKind.find`; what is there is not known."""
        names = range(_MOST)
        return [Device(index=str(n), key=f"elsewhere-{n}", name="elsewhere", is_seen=False) for n in names]

    def described(self, devices: Sequence[Device]) -> list[Device]:
        """See `DeviceKind.described`; nobody can ask them."""
        return list(devices)

    def topology(self, devices: Sequence[Device]) -> Topology:
        """See `DeviceKind.topology`; it is not known."""
        return Topology()

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`; no server is started on them."""
        return {}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; no container is started on them."""
        return Passthrough()

    def measured_rates(self, devices: Sequence[Device]) -> None:
        """See `DeviceKind.measured_rates`; they cannot be measured from here."""

    def threads(self, cores: int, count: int) -> int:
        """See `DeviceKind.threads`; two loads at once would disturb each other, on one server more than anywhere."""
        return cores


DEVICES.register("elsewhere", Elsewhere())
