"""Topologies are read as the vendors' tools print them, and neighbours are chosen."""

from __future__ import annotations

import pytest
from device_tools import DATA

from servelab.machine.devices import Topology, parse_matrix

SAMPLES = {
    "nvidia-topo-8-v100.txt": ("GPU", range(8)),
    "nvidia-topo-8-a100.txt": ("GPU", range(8)),
    "nvidia-topo-8-rtx4090.txt": ("GPU", range(8)),
    "nvidia-topo-4-pairs.txt": ("GPU", range(4)),
    "nvidia-topo-4-k80.txt": ("GPU", range(4)),
    "npu-topo-8-910b3.txt": ("NPU", range(8)),
    "npu-topo-4-pcie.txt": ("NPU", range(4)),
    "npu-topo-2-a3.txt": ("Phy-ID", range(12, 14)),
}


def labels(sample: str) -> dict[str, str]:
    """Key of each device by its label: here simply its number."""
    prefix, numbers_of = SAMPLES[sample]
    return {f"{prefix}{number}": str(number) for number in numbers_of}


def read(sample: str) -> Topology:
    return parse_matrix((DATA / sample).read_text(), labels(sample))


@pytest.mark.parametrize(
    ("sample", "one", "other", "way", "cpus"),
    [
        ("nvidia-topo-8-v100.txt", "0", "4", "NV2", "0-19,40-59"),
        ("nvidia-topo-8-v100.txt", "5", "2", "SYS", "20-39,60-79"),
        ("nvidia-topo-8-a100.txt", "7", "0", "NV12", "24-47,72-95"),
        ("nvidia-topo-8-rtx4090.txt", "6", "7", "SYS", "56-111,168-223"),
        ("nvidia-topo-4-k80.txt", "2", "3", "PIX", "0-11"),
        ("npu-topo-8-910b3.txt", "3", "5", "HCCS", "96-119"),
        ("npu-topo-4-pcie.txt", "0", "2", "SYS", "144-167"),
        ("npu-topo-2-a3.txt", "12", "13", "SIO", None),
    ],
)
def test_ways_and_cpus(sample, one, other, way, cpus):
    topology = read(sample)
    assert topology.ways[frozenset((one, other))] == way
    assert topology.cpus.get(one) == cpus


@pytest.mark.parametrize(
    ("sample", "free", "count", "chosen"),
    [
        # DGX-1: four that are all linked by NVLink are 0-3 or 4-7; the best pair has two links.
        ("nvidia-topo-8-v100.txt", "01234567", 4, "0123"),
        ("nvidia-topo-8-v100.txt", "1234567", 4, "4567"),
        ("nvidia-topo-8-v100.txt", "01234567", 2, "03"),
        # All links equal: then those of one NUMA node; a half node is filled before a whole one is broken.
        ("nvidia-topo-8-a100.txt", "01234567", 4, "0123"),
        ("nvidia-topo-8-a100.txt", "01234567", 2, "01"),
        ("nvidia-topo-8-a100.txt", "0234567", 4, "4567"),
        ("nvidia-topo-8-rtx4090.txt", "0345", 2, "03"),
        # Pairs: a single one does not break a pair that is free.
        ("nvidia-topo-4-pairs.txt", "0123", 2, "01"),
        ("nvidia-topo-4-pairs.txt", "123", 2, "23"),
        ("nvidia-topo-4-pairs.txt", "123", 1, "1"),
        ("npu-topo-8-910b3.txt", "1234567", 2, "23"),
        ("npu-topo-4-pcie.txt", "0123", 2, "01"),
    ],
)
def test_neighbours_are_chosen(sample, free, count, chosen):
    assert read(sample).choose(list(free), count) == list(chosen)
