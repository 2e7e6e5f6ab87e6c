"""Topology: how the devices of a machine are connected, as the vendor's tool reports it, and which are the closest.

`nvidia-smi topo -m` and `npu-smi info -t topo` print a matrix of the same form. Their legends define the words and
their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, takewhile
from math import comb
from pathlib import Path

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
        order. If there are too many sets to try (cores of a large processor), it tries one per device: the set that
        starts there and adds the nearest device each time.
        """
        far = [[self.distance(one, other) for other in free] for one in free]
        tried: Iterable[Sequence[int]] = combinations(range(len(free)), count)
        if comb(len(free), count) > _MOST_TRIED:
            tried = [_grown(far, first, count) for first in range(len(free))]
        return [free[index] for index in min(tried, key=lambda chosen: _rank(far, chosen))]


def _grown(far: Sequence[Sequence[int]], first: int, count: int) -> list[int]:
    chosen = [first]
    added = {i: (way, way) for i, way in enumerate(far[first]) if i != first}
    while len(chosen) < count:
        nearest = min(added, key=lambda i: added[i])
        chosen.append(nearest)
        del added[nearest]
        added = {i: (max(most, far[nearest][i]), total + far[nearest][i]) for i, (most, total) in added.items()}
    return sorted(chosen)


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


def numa_node(cpus: str | None, nodes: Path = _NODES) -> int | None:
    """The NUMA node of CPUs such as `0-23,48-71`; None if they belong to several nodes or the node is unknown."""
    wanted = set(numbers(cpus or ""))
    found = [node for node, of_node in numa_nodes(nodes).items() if wanted.intersection(numbers(of_node))]
    return found[0] if len(found) == 1 else None


def numa_nodes(nodes: Path = _NODES) -> dict[int, str]:
    """NUMA node → its CPUs, as the kernel lists them; empty if it lists none."""
    lists = sorted(nodes.glob("node[0-9]*/cpulist"))
    return {int(path.parent.name.removeprefix("node")): path.read_text(encoding="ascii").strip() for path in lists}
