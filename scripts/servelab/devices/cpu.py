"""The machine's processors, as one device: two servers at once would measure each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from servelab.devices import DEVICES, Device, Passthrough
from servelab.topology import Topology

KEY = "cpu"


@dataclass(frozen=True)
class Cpu:
    """All CPUs and the memory of the machine."""

    name: str = "cpu"
    variable: None = None
    gres: tuple[str, ...] = ()

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        return [Device(index="0", key=KEY, name=cpu_model(), memory_bytes=psutil.virtual_memory().total)]

    def topology(self, devices: Sequence[Device]) -> Topology:
        """See `DeviceKind.topology`; there is but one."""
        return Topology()

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`; nothing needs saying."""
        return {}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; a container sees them all."""
        return Passthrough()

    def threads(self, cores: int, count: int) -> int:
        """See `DeviceKind.threads`; the engine computes on them all."""
        return cores


def cpu_model() -> str:
    """The processor's name, as the kernel gives it."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


DEVICES.register("cpu", Cpu())
