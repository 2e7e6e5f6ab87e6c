"""NVIDIA GPUs, by `nvidia-smi`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from servelab.devices import DEVICES, Device, ask, visible

_FIELDS = "index,uuid,name,driver_version,memory.total"


@dataclass(frozen=True)
class Nvidia:
    """GPUs, locked by their UUID: a batch system may number them anew for each job."""

    name: str = "nvidia"
    apptainer_flags: tuple[str, ...] = ("--nv",)

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        text = ask(["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"])
        return visible(parse(text), os.environ.get("CUDA_VISIBLE_DEVICES"))

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`; CUDA numbers devices as `nvidia-smi` does only in bus order."""
        indices = ",".join(device.index for device in devices)
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": indices}

    def threads(self, cores: int) -> int:
        """See `DeviceKind.threads`."""
        return 1


def parse(text: str) -> list[Device]:
    """Devices from the tool's CSV; memory is in MiB there."""
    devices = []
    for line in text.splitlines():
        index, uuid, name, driver, memory_mib = (field.strip() for field in line.split(","))
        memory = int(memory_mib) << 20 if memory_mib.isdigit() else None
        devices.append(Device(index=index, key=uuid, name=name, driver=driver, memory_bytes=memory))
    return devices


DEVICES.register("nvidia", Nvidia())
