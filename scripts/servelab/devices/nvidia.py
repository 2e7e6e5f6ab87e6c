"""NVIDIA GPUs, by `nvidia-smi`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from servelab.devices import DEVICES, Device, Passthrough, ask, asked_topology
from servelab.topology import Topology

_FIELDS = "index,uuid,name,driver_version,memory.total"
_LINE = re.compile(r"(\d+), *(GPU-[\w-]+), *(.+), *([\w.]+), *(.+)")


@dataclass(frozen=True)
class Nvidia:
    """GPUs, locked by their UUID: a batch system may number them anew for each job."""

    name: str = "nvidia"
    variable: str = "CUDA_VISIBLE_DEVICES"
    gres: tuple[str, ...] = ("gpu",)

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        return parse(ask(["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]))

    def topology(self, devices: Sequence[Device]) -> Topology:
        """See `DeviceKind.topology`."""
        return asked_topology(["nvidia-smi", "topo", "-m"], devices)

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`; CUDA numbers devices as `nvidia-smi` does only in bus order."""
        indices = ",".join(device.index for device in devices)
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", self.variable: indices}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; by UUID, which no batch system renumbers.

        Docker reads its value as CSV, so several devices stand in quotes. Podman takes names of the Container Device
        Interface, which NVIDIA's toolkit writes down on the host.
        """
        keys = [device.key for device in devices]
        named = tuple(part for key in keys for part in ("--device", f"nvidia.com/gpu={key}"))
        quoted = f'"device={",".join(keys)}"'
        return Passthrough(flags={"apptainer": ("--nv",), "docker": ("--gpus", quoted), "podman": named})

    def threads(self, cores: int, count: int) -> int:
        """See `DeviceKind.threads`."""
        return 1


def parse(text: str) -> list[Device]:
    """Devices from the tool's CSV; memory is in MiB there. Other lines are left out."""
    devices = []
    for line in text.splitlines():
        if found := _LINE.fullmatch(line.strip()):
            index, uuid, name, driver, memory_mib = (field.strip() for field in found.groups())
            memory = int(memory_mib) << 20 if re.fullmatch(r"[0-9]{1,9}", memory_mib) else None
            label = f"GPU{index}"
            devices.append(Device(index, key=uuid, name=name, driver=driver, memory_bytes=memory, label=label))
    return devices


DEVICES.register("nvidia", Nvidia())
