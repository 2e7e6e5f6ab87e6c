"""Topology: which devices of a machine are neighbours, as the vendor's tool tells it, and which set is the closest.

Both tools print a matrix of the same make: `nvidia-smi topo -m` and `npu-smi info -t topo`. Their legends give the
words and their order.
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
"""How far a way is, the shortest first; NVLink is 40 less the number of its links, so that more links are nearer."""
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
    """What is known of the ways between devices, by their keys; empty where nothing could be read."""

    ways: Mapping[frozenset[str], str] = field(default_factory=dict)
    """Two devices → the tool's word for the way between them, such as `NV18`, `HCCS`, `PIX`, `SYS`."""
    cpus: Mapping[str, str] = field(default_factory=dict)
    """A device → the CPUs next to it, as `0-23,48-71`."""

    def distance(self, one: str, other: str) -> int:
        """How far apart two devices are: the way between them, and one more if they are next to other CPUs."""
        word = self.ways.get(frozenset((one, other)), "")
        links = _NVLINKS.fullmatch(word)
        way = 40 - int(links.group(1)) if links else _WAYS.get(word, _UNKNOWN)
        return way + (self.cpus.get(one) != self.cpus.get(other))

    def choose(self, free: Sequence[str], count: int) -> list[str]:
        """The `count` of the free devices that are the closest neighbours, in the order of `free`.

        The longest way between two of them counts first, then the sum of all. Among equals it takes what is far from
        the devices it leaves, so that close ones stay together for the next, and then the first in order. Of more sets
        than can be tried (cores of a large processor), those that grow from each device by the nearest one are tried.
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
    """The topology that a vendor's tool prints; `key_of` has the key of each device by its label there, as `GPU0`.

    The header names a column for each device, and behind them others; a row has the device's label, a cell for each
    column, and somewhere behind these its CPUs. What does not look like that is left out.
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
    """The numbers of `0-2,7`; parts of another form are left out."""
    found = re.findall(r"(?<![\w-])(\d{1,5})(?:-(\d{1,5}))?(?![\w-])", ranges)
    return [number for low, high in found for number in range(int(low), int(high or low) + 1)]


def numa_node(cpus: str | None, nodes: Path = _NODES) -> int | None:
    """The one NUMA node that CPUs such as `0-23,48-71` belong to; None where they are of several, or it is unknown."""
    wanted = set(numbers(cpus or ""))
    found = [node for node, of_node in numa_nodes(nodes).items() if wanted.intersection(numbers(of_node))]
    return found[0] if len(found) == 1 else None


def numa_nodes(nodes: Path = _NODES) -> dict[int, str]:
    """NUMA node → its CPUs, as the kernel lists them; empty where it does not."""
    lists = sorted(nodes.glob("node[0-9]*/cpulist"))
    return {int(path.parent.name.removeprefix("node")): path.read_text(encoding="ascii").strip() for path in lists}
