"""The machine's processors as one device: two servers at once would disturb each other's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from servelab.machine.cpu_facts import cpu_model
from servelab.machine.cpu_rates import cpu_rates
from servelab.machine.device_rates import DeviceRates
from servelab.machine.devices import DEVICES, Device, Passthrough
from servelab.machine.topology import Topology

KEY = "cpu"


@dataclass(frozen=True)
class Cpu:
    """All CPUs and the memory of the machine."""

    name: str = "cpu"
    variable: None = None
    gres: tuple[str, ...] = ()
    words: tuple[str, ...] = ("cpu",)

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        return [Device(index="0", key=KEY, name=cpu_model(), memory_bytes=psutil.virtual_memory().total)]

    def described(self, devices: Sequence[Device]) -> list[Device]:
        """See `DeviceKind.described`; what a CPU has is in the manifest's `machine`."""
        return list(devices)

    def topology(self, devices: Sequence[Device]) -> Topology:
        """See `DeviceKind.topology`; there is only one device."""
        return Topology()

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`; an engine needs no variable."""
        return {}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; a container sees all CPUs."""
        return Passthrough()

    def measured_rates(self, devices: Sequence[Device]) -> DeviceRates:
        """See `DeviceKind.measured_rates`."""
        return cpu_rates([])

    def threads(self, cores: int, count: int) -> int:
        """See `DeviceKind.threads`; the engine computes on all of them."""
        return cores


DEVICES.register("cpu", Cpu())
