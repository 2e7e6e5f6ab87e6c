"""Devices: what an engine computes on. Each kind is one file that registers itself.

`servelab.allocations` says which of a machine's devices a process may use, `servelab.lease` lends them, one run at a
time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from servelab.errors import Outage
from servelab.registry import Registry
from servelab.topology import Topology, parse_matrix

_NONE = ("-1", "NoDevFiles")
"""What CUDA and old releases of Slurm have in a variable that names no device."""


@dataclass(frozen=True)
class Device:
    """One accelerator of this machine."""

    index: str
    """How the engine is told to use it."""
    key: str
    """The same for every process of the machine, however few devices each may see; names its lock."""
    name: str
    driver: str | None = None
    memory_bytes: int | None = None
    label: str = ""
    """Its name in the topology that the vendor's tool prints."""
    cpus: tuple[int, ...] = ()
    """The CPUs it is made of, if it is made of some."""
    within: str | None = None
    """Key of the device that this one is a part of: who has the whole has all its parts."""


@dataclass(frozen=True)
class Passthrough:
    """What a container must be given to see devices."""

    nodes: tuple[str, ...] = ()
    """Device nodes; Apptainer shows all of the host's by itself."""
    mounts: tuple[Path, ...] = ()
    """Files and folders of the driver, to be read at the same place."""
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Container program → its own flags for what the vendor has built into it."""


class DeviceKind(Protocol):
    """One kind of device."""

    @property
    def name(self) -> str:
        """Its name in a study."""
        ...

    @property
    def variable(self) -> str | None:
        """The environment variable that names the devices a program may use; None where there is none."""
        ...

    @property
    def gres(self) -> tuple[str, ...]:
        """Names that batch systems have for it as a resource; empty for what they do not give by the piece."""
        ...

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """What a container must be given to see these devices."""
        ...

    def find(self) -> list[Device]:
        """The devices of this machine that this process can see; `Outage` if none can be told."""
        ...

    def topology(self, devices: Sequence[Device]) -> Topology:
        """Which of these are neighbours; empty where that cannot be read, which keeps nobody from using them."""
        ...

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Environment variables that make an engine use these devices and no other."""
        ...

    def threads(self, cores: int, count: int) -> int:
        """How many of a workflow's `cores` a run on `count` devices must have, so that nothing disturbs its figures."""
        ...


def ask(command: Sequence[str], timeout_s: float = 60.0) -> str:
    """What the vendor's tool prints; `Outage` if it is missing, fails or does not end in time."""
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=timeout_s)
    except (OSError, subprocess.SubprocessError) as error:
        raise Outage(f"cannot ask for devices: {error}") from error
    return done.stdout.decode(errors="replace")


def asked_topology(command: Sequence[str], devices: Sequence[Device]) -> Topology:
    """The topology that the vendor's tool prints; empty if it prints none, as old releases and virtual machines do."""
    try:
        return parse_matrix(ask(command), {device.label: device.key for device in devices})
    except Outage:
        return Topology()


def named(devices: Sequence[Device], value: str, source: str) -> list[Device]:
    """The devices that `0,2`, or beginnings of their keys, name, in this order; `Outage` if one is not there."""
    chosen: list[Device] = []
    for token in (part.strip() for part in value.split(",") if part.strip()):
        if token in _NONE:
            break
        like = [d for d in devices if token == d.index or (len(token) > 3 and d.key.startswith(token))]
        if len(like) != 1:
            there = ", ".join(device.index for device in devices) or "none"
            found = "several devices are called so" if like else f"devices here are: {there}"
            raise Outage(f"{source} names device `{token}`; {found}")
        chosen += [device for device in like if device not in chosen]
    return chosen


DEVICES: Registry[DeviceKind] = Registry("device")
DEVICES.load(__name__)
