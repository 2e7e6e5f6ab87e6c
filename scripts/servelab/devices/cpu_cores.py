"""Single cores of the machine's processors: a run's server is kept on as many as it asks for.

Runs beside each other still share memory bandwidth, caches and the clock's headroom, which a server of a large model
lives on: compare candidates on the whole machine (`cpu`) where a figure must not depend on its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from servelab.devices import DEVICES, Device, Passthrough
from servelab.devices.cpu import KEY, cpu_model
from servelab.topology import Topology, numa_nodes, numbers

_CPUS = Path("/sys/devices/system/cpu")
_CORES_OF_ONE_FOR_CLIENTS = 8


@dataclass(frozen=True)
class CpuCores:
    """Cores with all their hardware threads, of the CPUs that this process may use.

    The first of every eight is left to load clients and the rest of the system.
    """

    name: str = "cpu-cores"
    variable: None = None
    gres: tuple[str, ...] = ()

    def find(self) -> list[Device]:
        """See `DeviceKind.find`."""
        cores = _cores(os.sched_getaffinity(0))
        kept = -(-len(cores) // _CORES_OF_ONE_FOR_CLIENTS) if len(cores) > 1 else 0
        name = cpu_model()
        return [Device(str(c[0]), key=f"core-{c[0]}", name=name, cpus=c, within=KEY) for c in cores[kept:]]

    def topology(self, devices: Sequence[Device]) -> Topology:
        """See `DeviceKind.topology`: cores of one NUMA node are neighbours."""
        nodes = {cpu: cpus for cpus in numa_nodes().values() for cpu in numbers(cpus)}
        return Topology(cpus={device.key: nodes[device.cpus[0]] for device in devices if device.cpus[0] in nodes})

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """See `DeviceKind.environment`; the server is started on its CPUs, and whatever it starts stays there."""
        return {}

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """See `DeviceKind.passthrough`; Docker's containers are its daemon's children, not this process's."""
        cpus = ",".join(str(cpu) for device in devices for cpu in device.cpus)
        return Passthrough(flags=dict.fromkeys(("docker", "podman"), (f"--cpuset-cpus={cpus}",)))

    def threads(self, cores: int, count: int) -> int:
        """See `DeviceKind.threads`."""
        return min(cores, count)


def _cores(cpus: set[int]) -> list[tuple[int, ...]]:
    """The CPUs of each core, sorted; each is a core of its own where the kernel does not tell."""
    cores = set()
    for cpu in cpus:
        siblings = _CPUS / f"cpu{cpu}/topology/thread_siblings_list"
        listed = numbers(siblings.read_text(encoding="ascii")) if siblings.exists() else [cpu]
        cores.add(tuple(sorted(cpus.intersection(listed) | {cpu})))
    return sorted(cores)


DEVICES.register("cpu-cores", CpuCores())
