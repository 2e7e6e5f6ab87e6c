"""The machine's processors as one device: two servers at once would disturb each other's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from servelab.machine.cpu_facts import cpu_model
from servelab.machine.cpu_rates import cpu_rates
from servelab.machine.device_rates import DeviceRates
from servelab.machine.devices import DEVICES, Device, DeviceKind

KEY = "cpu"


@dataclass(frozen=True)
class Cpu(DeviceKind):
    """All CPUs and the memory of the machine."""

    name: str = "cpu"
    variable: None = None
    gres: tuple[str, ...] = ()
    words: tuple[str, ...] = ("cpu",)

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        return [Device(index="0", key=KEY, name=cpu_model(), memory_bytes=psutil.virtual_memory().total)]

    def measured_rates(self, devices: Sequence[Device]) -> DeviceRates:
        """See `DeviceKind.measured_rates`."""
        return cpu_rates([])


DEVICES.register("cpu", Cpu())
