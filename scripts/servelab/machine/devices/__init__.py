"""Devices: what an engine computes on. Each kind is one file that registers itself.

`servelab.machine.allocations` says which devices of a machine a process may use; `servelab.machine.lease` reserves them
for one run at a time.
"""

from __future__ import annotations

import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from servelab.core.errors import Outage
from servelab.core.files import JsonPart
from servelab.core.registry import Registry


def numbers(ranges: str) -> list[int]:
    """The numbers in `0-2,7`; parts of another form are ignored."""
    found = re.findall(r"(?<![\w-])(\d{1,5})(?:-(\d{1,5}))?(?![\w-])", ranges)
    return [number for low, high in found for number in range(int(low), int(high or low) + 1)]


_NONE = ("-1", "NoDevFiles")
"""Values of a device variable that mean no device, in CUDA and in old releases of Slurm."""


class DeviceSettings(JsonPart):
    """How an accelerator is set up; nulls are what the vendor's tool does not report."""

    runtime: str | None = Field(None, description="Newest CUDA that the driver supports, or the host's CANN.")
    mig_mode: str | None = Field(None, description="`Enabled` if a GPU is split into instances.")
    ecc_mode: str | None = Field(None, description="`Enabled` if its memory corrects errors.")
    power_limit_w: float | None = Field(None, description="Power limit that is set.")
    clock_core_mhz: float | None = Field(None, description="Application clock of a GPU; rated clock of an NPU.")
    clock_memory_mhz: float | None = Field(None, description="Application clock of a GPU's memory.")


def value_or_none(text: str | None) -> str | None:
    """A text of a vendor's tool; None for its ways to say that there is none."""
    text = (text or "").strip()
    is_none = not text or text.strip("[]").casefold() in ("n/a", "na", "-", "none", "unknown", "not supported")
    return None if is_none or "deprecated" in text or "Insufficient" in text else text


def number_or_none(text: str | None) -> float | None:
    """The number at the beginning of a text, such as `700.00 W`; None if it does not begin with one."""
    first = (value_or_none(text) or "").split(" ")[0]
    return float(first) if first.replace(".", "", 1).isdecimal() and first.isascii() else None


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
    cpus: tuple[int, ...] = ()
    """Its CPUs, if the device consists of CPUs."""
    within: str | None = None
    """Key of the device that this one is part of: a lease of the whole includes its parts."""
    settings: DeviceSettings | None = None
    """None if they were not read, or are not known."""
    is_seen: bool = True
    """Whether its name was read; one that is not seen from here is what the study says."""

    @property
    def number(self) -> int:
        """Its number on the machine; an instance of a GPU has the GPU's."""
        return int(self.index.partition(":")[0])


def neighbours(free: Sequence[Device], count: int) -> list[Device]:
    """So many of the free devices, those that are next to each other by their numbers.

    Numbers follow the bus: an aligned pair, four or eight of them shares its fastest connection and a NUMA node. The
    smallest such block counts, then the nearest numbers, then the block in which the fewest other devices are free, so
    that whole blocks stay together for the next run.
    """

    def rank(chosen: Sequence[Device]) -> tuple[int, int, int]:
        first, last = chosen[0].number, chosen[-1].number
        level = (first ^ last).bit_length()
        beside = sum((first ^ other.number).bit_length() <= level + 1 for other in free)
        return level, last - first, beside

    ordered = sorted(free, key=lambda device: device.number)
    chosen = min((ordered[at : at + count] for at in range(len(ordered) - count + 1)), key=rank)
    return [device for device in free if device in chosen]


@dataclass(frozen=True)
class Passthrough:
    """The arguments that show devices to a container."""

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
    is_divided: bool = False
    """Whether one device is the whole machine, which servers share by its cores (`divided`)."""
    gres: tuple[str, ...] = ()
    """Names of this resource in batch systems; empty if they do not allocate single devices of this kind."""
    words: tuple[str, ...] = ()
    """Words that every device's name may have, in lower case, such as `gpu`."""

    def passthrough(self, devices: Sequence[Device]) -> Passthrough:
        """The arguments that show these devices to a container."""
        return Passthrough()

    @abstractmethod
    def find(self) -> list[Device]:
        """The devices of this machine that this process can see; `Outage` if the vendor's tool does not answer."""

    def divided(self, device: Device, parts: int) -> list[Device]:
        """The device in so many parts, each with CPUs of its own; `Outage` if it has too few."""
        raise NotImplementedError

    def described(self, devices: Sequence[Device]) -> list[Device]:
        """The same devices with their settings, as far as the vendor's tool reports them; this may take seconds."""
        return list(devices)

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Environment variables that make an engine use these devices and no others."""
        return {}

    def threads(self, cores: int, count: int) -> int:
        """How many of a workflow's `cores` a run on `count` devices needs so that other jobs do not disturb it."""
        return 1


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
