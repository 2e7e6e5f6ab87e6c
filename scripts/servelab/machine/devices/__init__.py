"""Devices: what an engine computes on. Each kind is one file that registers itself.

`servelab.machine.allocations` says which devices of a machine a process may use; `servelab.machine.lease` reserves them
for one run at a time.
"""

from __future__ import annotations

import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, takewhile
from math import comb
from pathlib import Path

from pydantic import Field

from servelab.core.errors import Outage
from servelab.core.files import JsonPart
from servelab.core.registry import Registry

_WAYS = {
    "SIO": 0,  # two dies of one chip
    "HCCS": 40,
    "UB": 40,
    "HCCS_SW": 45,  # through a switch
    "PIX": 50,  # one PCIe switch
    "PXB": 60,  # several
    "PHB": 70,  # the CPU's PCIe host bridge
    "NODE": 80,  # several host bridges of one NUMA node
    "SYS": 90,  # between NUMA nodes
    "SOC": 90,  # its name in old releases
}
"""Distance of a connection, the shortest first. NVLink is 40 minus its number of links: more links are closer."""
_UNKNOWN = 100
_MOST_TRIED = comb(16, 8)
_NVLINKS = re.compile(r"NV(\d{1,2})")
_WORD = re.compile(r"NV\d{1,2}|[A-Z][A-Z_]*")
_LABEL = re.compile(r"(GPU|NPU|Phy-ID)\d+")
_CPUS = re.compile(r"\d{1,5}([-,]\d{1,5})+")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True)
class Topology:
    """Connections between devices, by device key; empty if the tool reports none."""

    ways: Mapping[frozenset[str], str] = field(default_factory=dict)
    """Two devices → the tool's word for their connection, such as `NV18`, `HCCS`, `PIX`, `SYS`."""
    cpus: Mapping[str, str] = field(default_factory=dict)
    """A device → its nearest CPUs, as `0-23,48-71`."""

    def distance(self, one: str, other: str) -> int:
        """Distance of two devices, without unit: that of their connection, plus 1 if their nearest CPUs differ."""
        word = self.ways.get(frozenset((one, other)), "")
        links = _NVLINKS.fullmatch(word)
        way = 40 - int(links.group(1)) if links else _WAYS.get(word, _UNKNOWN)
        return way + (self.cpus.get(one) != self.cpus.get(other))

    def choose(self, free: Sequence[str], count: int) -> list[str]:
        """The `count` free devices that are closest to each other, in the order of `free`.

        Sets are compared by their largest distance, then by the sum of distances. Among equal sets it takes the one
        farthest from the remaining devices, so that close devices stay together for the next run, then the first in
        order. If there are too many sets to try (cores of a large processor), it tries those that are next to each
        other in the list.
        """
        far = [[self.distance(one, other) for other in free] for one in free]
        tried: Iterable[Sequence[int]] = combinations(range(len(free)), count)
        if comb(len(free), count) > _MOST_TRIED:
            tried = [range(first, first + count) for first in range(len(free) - count + 1)]
        return [free[index] for index in min(tried, key=lambda chosen: _rank(far, chosen))]


def _rank(far: Sequence[Sequence[int]], chosen: Sequence[int]) -> tuple[int, int, int, tuple[int, ...]]:
    inside = [far[one][other] for one in chosen for other in chosen if other < one]
    others = set(range(len(far))).difference(chosen)
    left = [far[one][other] for one in chosen for other in others]
    return max(inside, default=0), sum(inside), -sum(left), tuple(chosen)


def parse_matrix(text: str, key_of: Mapping[str, str]) -> Topology:
    """The topology that a vendor's tool prints; `key_of` maps its labels, such as `GPU0`, to device keys.

    The header has a column for each device, then other columns. A row has the device's label, a cell for each column,
    and after these its nearest CPUs. Lines of another form are ignored.
    """
    columns: list[str] = []
    ways: dict[frozenset[str], str] = {}
    cpus: dict[str, str] = {}
    for words in (_ESCAPES.sub("", line).split() for line in text.splitlines()):
        if not words or not _LABEL.fullmatch(words[0]):
            continue
        if not columns:
            columns = list(takewhile(_LABEL.fullmatch, words))
            continue
        row, cells, behind = words[0], words[1 : 1 + len(columns)], words[1 + len(columns) :]
        if row not in key_of:
            continue
        for column, cell in zip(columns, cells, strict=False):
            if column in key_of and column != row and _WORD.fullmatch(cell):
                ways.setdefault(frozenset((key_of[row], key_of[column])), cell)
        if near := next(filter(_CPUS.fullmatch, behind), None):
            cpus[key_of[row]] = near
    return Topology(ways, cpus)


def numbers(ranges: str) -> list[int]:
    """The numbers in `0-2,7`; parts of another form are ignored."""
    found = re.findall(r"(?<![\w-])(\d{1,5})(?:-(\d{1,5}))?(?![\w-])", ranges)
    return [number for low, high in found for number in range(int(low), int(high or low) + 1)]


def numa_nodes(nodes: Path = _NODES) -> dict[int, str]:
    """NUMA node → its CPUs, as the kernel lists them; empty if it lists none."""
    lists = sorted(nodes.glob("node[0-9]*/cpulist"))
    return {int(path.parent.name.removeprefix("node")): path.read_text(encoding="ascii").strip() for path in lists}


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

    def topology(self, devices: Sequence[Device]) -> Topology:
        """How these devices are connected; empty if that is unknown, and the devices can still be used."""
        return Topology()

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        """Environment variables that make an engine use these devices and no others."""
        return {}

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
