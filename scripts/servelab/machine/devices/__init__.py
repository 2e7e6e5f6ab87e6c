"""Devices: what an engine computes on. Each kind is one file that registers itself.

`servelab.machine.allocations` says which devices of a machine a process may use; `servelab.machine.lease` reserves them
for one run at a time.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servelab.core.errors import Outage
from servelab.core.registry import Registry
from servelab.machine.cpu_rates import DeviceRates
from servelab.machine.place import DeviceSettings
from servelab.machine.topology import Topology, parse_matrix

_NONE = ("-1", "NoDevFiles")
"""Values of a device variable that mean no device, in CUDA and in old releases of Slurm."""


@dataclass(frozen=True)
class Device:
    """One accelerator of this machine."""

    index: str
    """Its number in the environment variable that selects devices."""
    key: str
    """Its name for locks: the same for every process of the machine, however few devices a process sees."""
    name: str
    driver: str | None = None
    memory_bytes: int | None = None
    label: str = ""
    """Its name in the topology that the vendor's tool prints."""
    cpus: tuple[int, ...] = ()
    """Its CPUs, if the device consists of CPUs."""
    within: str | None = None
    """Key of the device that this one is part of: a lease of the whole includes its parts."""
    settings: DeviceSettings | None = None
    """None if they were not read, or are not known."""
    is_seen: bool = True
    """Whether its name was read; one that is not seen from here is what the study says."""


@dataclass(frozen=True)
class Passthrough:
    """What a container needs to see devices."""

    nodes: tuple[str, ...] = ()
    """Device nodes; Apptainer shows all nodes of the host anyway."""
    mounts: tuple[Path, ...] = ()
    """Files and folders of the driver, mounted read-only at the same path."""
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Container program → its flags for the vendor's devices."""


class DeviceKind(ABC):
    """One kind of device. The defaults are those of devices that no vendor's tool describes."""

    name: str
    """Its name in a study."""
    variable: str | None = None
    """The environment variable that names the devices a program may use; None if there is none."""
    gres: tuple[str, ...] = ()
    """Names of this resource in batch systems; empty if they do not allocate single devices of this kind."""
    words: tuple[str, ...] = ()
    """Words that every device's name may have, in lower case, such as `gpu`."""

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """What a container needs to see these devices."""
        return Passthrough()

    @abstractmethod
    def find(self) -> list[Device]:
        """The devices of this machine that this process can see; `Outage` if the vendor's tool does not answer."""

    def described(self, devices: Sequence[Device]) -> list[Device]:
        """The same devices with their settings, as far as the vendor's tool reports them; this may take seconds."""
        return list(devices)

    def topology(self, devices: Sequence[Device]) -> Topology:
        """How these devices are connected; empty if that is unknown, and the devices can still be used."""
        return Topology()

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Environment variables that make an engine use these devices and no others."""
        return {}

    def measured_rates(self, devices: Sequence[Device]) -> DeviceRates | None:
        """The rates of all these devices together, if they have to be measured; None for those that makers publish."""
        return None

    def threads(self, cores: int, count: int) -> int:
        """How many of a workflow's `cores` a run on `count` devices needs so that other jobs do not disturb it."""
        return cores


def ask(command: Sequence[str], timeout_s: float = 60.0) -> str:
    """The output of the vendor's tool; `Outage` if it is missing, fails or exceeds the time limit."""
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=timeout_s)
    except (OSError, subprocess.SubprocessError) as error:
        raise Outage(f"cannot ask for devices: {error}") from error
    return done.stdout.decode(errors="replace")


def answer(command: Sequence[str]) -> str:
    """The output of the vendor's tool; empty if it does not know the question, as in old releases."""
    try:
        return ask(command)
    except Outage:
        return ""


def asked_topology(command: Sequence[str], devices: Sequence[Device]) -> Topology:
    """The topology that the vendor's tool prints; empty if it prints none, as in old releases and virtual machines."""
    try:
        return parse_matrix(ask(command), {device.label: device.key for device in devices})
    except Outage:
        return Topology()


def named(devices: Sequence[Device], value: str, source: str) -> list[Device]:
    """The devices named by a list such as `0,2`, by index or by the beginning of the key, in the list's order.

    `source` names the list in messages. `Outage` if a name fits no device or several.
    """
    chosen: list[Device] = []
    for token in (part.strip() for part in value.split(",") if part.strip()):
        if token in _NONE:
            break
        like = [d for d in devices if token == d.index or (len(token) > 3 and d.key.startswith(token))]
        if len(like) != 1:
            there = ", ".join(device.index for device in devices) or "none"
            found = "several devices have this name" if like else f"devices here are: {there}"
            raise Outage(f"{source} names device `{token}`; {found}")
        chosen += [device for device in like if device not in chosen]
    return chosen


DEVICES: Registry[DeviceKind] = Registry("device")
DEVICES.load(__name__)
