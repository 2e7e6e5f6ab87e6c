"""The whole machine: all its CPUs and its memory, for one run at a time."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from servelab.machine.cpu import cpu_model, cpu_rates
from servelab.machine.devices import DEVICES, Device, DeviceKind
from servelab.machine.rates import DeviceRates

KEY = "cpu"


class Cpu(DeviceKind):
    """All CPUs and the memory of the machine."""

    name = "cpu"
    words = ("cpu",)

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        return [Device(index="0", key=KEY, name=cpu_model(), memory_bytes=psutil.virtual_memory().total)]

    def measured_rates(self, devices: Sequence[Device]) -> DeviceRates:
        """See `DeviceKind.measured_rates`."""
        return cpu_rates([])


DEVICES.register("cpu", Cpu())
