"""Devices that no vendor's tool lists: the whole machine, its cores, and accelerators of another machine.

Simultaneous runs on cores of one machine still share memory bandwidth, caches and clock headroom, which limit a server
of a large model. If a figure must not depend on other runs, compare candidates on the whole machine (`cpu`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import psutil

from servelab.core.errors import Outage
from servelab.machine.cpu import cpu_model
from servelab.machine.devices import DEVICES, Device, DeviceKind, Passthrough, numbers

KEY = "cpu"
_CPUS = Path("/sys/devices/system/cpu")
_CORES_OF_ONE_FOR_CLIENTS = 8
_MOST_ELSEWHERE = 64
"""Accelerators that one server may have."""


class Cpu(DeviceKind):
    """All CPUs and the memory of the machine, for one run at a time."""

    name = "cpu"
    words: tuple[str, ...] = ("cpu",)
    is_divided = True

    def find(self) -> list[Device]:
        return [Device(index="0", key=KEY, name=cpu_model(), memory_bytes=psutil.virtual_memory().total)]

    def threads(self, cores: int, count: int) -> int:
        return cores

    def divided(self, device: Device, parts: int) -> list[Device]:
        """See `DeviceKind.divided`; cores next to each other, which share a NUMA node where that is possible."""
        cores = _cores(os.sched_getaffinity(0))
        if (each := len(cores) // parts) == 0:
            raise Outage(f"{parts} servers need a core each, this process may use {len(cores)}")
        shares = [cores[each * part : each * (part + 1)] for part in range(parts)]
        return [replace(device, cpus=tuple(sorted(chain.from_iterable(share)))) for share in shares]

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; Docker's daemon starts the container, so pinning this process has no effect."""
        cpus = ",".join(str(cpu) for device in devices for cpu in device.cpus)
        flags = dict.fromkeys(("docker", "podman"), (f"--cpuset-cpus={cpus}",))
        return Passthrough(flags=flags if cpus else {})


class CpuCores(Cpu):
    """Cores with all their hardware threads, from the CPUs that this process may use.

    One core in eight is reserved for load clients and the rest of the system.
    """

    name = "cpu-cores"
    words = ("cpu", "core", "cores")
    is_divided = False

    def find(self) -> list[Device]:
        cores = _cores(os.sched_getaffinity(0))
        kept = -(-len(cores) // _CORES_OF_ONE_FOR_CLIENTS) if len(cores) > 1 else 0
        name = cpu_model()
        return [Device(str(c[0]), key=f"core-{c[0]}", name=name, cpus=c, within=KEY) for c in cores[kept:]]

    def threads(self, cores: int, count: int) -> int:
        return min(cores, count)


def _cores(cpus: set[int]) -> list[tuple[int, ...]]:
    """The CPUs of each core, sorted; each CPU counts as a core if the kernel does not list siblings."""
    cores = set()
    for cpu in cpus:
        siblings = _CPUS / f"cpu{cpu}/topology/thread_siblings_list"
        listed = numbers(siblings.read_text(encoding="ascii")) if siblings.exists() else [cpu]
        cores.add(tuple(sorted(cpus.intersection(listed) | {cpu})))
    return sorted(cores)


class RemoteDevices(DeviceKind):
    """As many accelerators as a study says, of a server that already runs: they are never looked at or reserved."""

    name = "elsewhere"

    def find(self) -> list[Device]:
        """See `DeviceKind.find`; what is there is not known."""
        names = range(_MOST_ELSEWHERE)
        return [Device(index=str(n), key=f"elsewhere-{n}", name="elsewhere", is_seen=False) for n in names]

    def threads(self, cores: int, count: int) -> int:
        return cores


for _kind in (Cpu(), CpuCores(), RemoteDevices()):
    DEVICES.register(_kind.name, _kind)
