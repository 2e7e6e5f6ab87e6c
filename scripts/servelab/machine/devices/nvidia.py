"""NVIDIA GPUs, and instances of those that are split (MIG), read from `nvidia-smi`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

from servelab.machine.devices import (
    DEVICES,
    Device,
    DeviceKind,
    DeviceSettings,
    Passthrough,
    answer,
    ask,
    number_or_none,
    value_or_none,
)

_FIELDS = "index,uuid,name,driver_version,memory.total"
_LINE = re.compile(r"(\d+), *(GPU-[\w-]+), *(.+), *([\w.]+), *(.+)")

_LISTED = re.compile(r"GPU \d+: .*\(UUID: (GPU-[\w-]+)\)")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[\w/-]+)\)")

_POWER_LIMIT = (
    "gpu_power_readings/current_power_limit",
    "gpu_power_readings/power_limit",
    "power_readings/power_limit",
)
"""Where the limit is, in releases from new to old."""


class Nvidia(DeviceKind):
    """GPUs, locked by their UUID: a batch system may renumber them for each job.

    A GPU that is split into instances is not a device, but each of its instances is.
    """

    name = "nvidia"
    variable = "CUDA_VISIBLE_DEVICES"
    gres = ("gpu",)
    words = ("nvidia", "gpu")

    def find(self) -> list[Device]:
        gpus = parse(ask(["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]))
        instances = parse_instances(answer(["nvidia-smi", "-L"]), gpus)
        return [device for gpu in gpus for device in instances.get(gpu.key, [gpu])]

    def described(self, devices: Sequence[Device]) -> list[Device]:
        settings = parse_settings(answer(["nvidia-smi", "-q", "-x"]))
        return [replace(device, settings=settings.get(device.within or device.key)) for device in devices]

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`; CUDA's numbers equal those of `nvidia-smi` only in bus order.

        Instances have no number in CUDA, only their UUID.
        """
        indices = ",".join(device.key if device.within else device.index for device in devices)
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", self.variable: indices}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; by UUID, which no batch system renumbers.

        Docker reads the value as CSV, so several devices need quotes. Podman takes names of the Container Device
        Interface, which NVIDIA's toolkit writes on the host.
        """
        keys = [device.key for device in devices]
        named = tuple(part for key in keys for part in ("--device", f"nvidia.com/gpu={key}"))
        quoted = f'"device={",".join(keys)}"'
        return Passthrough(flags={"apptainer": ("--nv",), "docker": ("--gpus", quoted), "podman": named})


def parse(text: str) -> list[Device]:
    """Devices from the tool's CSV, with memory in MiB. Other lines are ignored."""
    devices = []
    for line in text.splitlines():
        if found := _LINE.fullmatch(line.strip()):
            index, uuid, name, driver, memory_mib = (field.strip() for field in found.groups())
            memory = int(memory_mib) << 20 if re.fullmatch(r"[0-9]{1,9}", memory_mib) else None
            devices.append(Device(index, key=uuid, name=name, driver=driver, memory_bytes=memory))
    return devices


def parse_instances(text: str, gpus: Sequence[Device]) -> dict[str, list[Device]]:
    """Instances of each split GPU by its UUID, from `nvidia-smi -L`; other lines are ignored.

    An instance's name ends in its profile (`MIG 3g.40gb`), which is what data sheets and runs differ by. Its memory is
    not in this list.
    """
    whole = {gpu.key: gpu for gpu in gpus}
    found: dict[str, list[Device]] = {}
    gpu: Device | None = None
    for line in text.splitlines():
        if listed := _LISTED.match(line):
            gpu = whole.get(listed[1])
        elif gpu and (instance := _INSTANCE.match(line)):
            profile, number, uuid = instance.groups()
            name = f"{gpu.name} MIG {profile}"
            index = f"{gpu.index}:{number}"
            part = Device(index, key=uuid, name=name, driver=gpu.driver, within=gpu.key)
            found.setdefault(gpu.key, []).append(part)
    return found


def parse_settings(text: str) -> dict[str, DeviceSettings]:
    """Settings of each GPU by its UUID, from the tool's XML; what it lacks is null, and damaged XML has no GPUs.

    Releases name the part with the power limit differently. None reports clocks that were locked (`nvidia-smi -lgc`).
    """
    try:
        log = ElementTree.fromstring(text.strip())  # noqa: S314 (from the vendor's tool on this machine)
    except ElementTree.ParseError:
        return {}
    cuda = value_or_none(log.findtext("cuda_version"))
    return {
        uuid: DeviceSettings(
            runtime=cuda and f"CUDA {cuda}",
            mig_mode=value_or_none(gpu.findtext("mig_mode/current_mig")),
            ecc_mode=value_or_none(gpu.findtext("ecc_mode/current_ecc")),
            power_limit_w=next(filter(None, (number_or_none(gpu.findtext(path)) for path in _POWER_LIMIT)), None),
            clock_core_mhz=number_or_none(gpu.findtext("applications_clocks/graphics_clock")),
            clock_memory_mhz=number_or_none(gpu.findtext("applications_clocks/mem_clock")),
        )
        for gpu in log.iter("gpu")
        if (uuid := gpu.findtext("uuid"))
    }


DEVICES.register("nvidia", Nvidia())
