"""Neighbours are chosen by number: what the tables of links of real nodes show to be closest."""

from __future__ import annotations

import pytest

from servelab.machine.devices import Device, neighbours


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        # DGX-1 (V100), DGX A100: fours that are all linked, or in one NUMA node, are 0-3 and 4-7.
        ("01234567", 4, "0123"),
        ("1234567", 4, "4567"),
        ("0234567", 4, "4567"),
        ("01234567", 2, "01"),
        # 910B3: a pair does not break a four that is free.
        ("1234567", 2, "23"),
        # NVLink bridges: a single one does not break a pair that is free.
        ("0123", 2, "01"),
        ("123", 2, "23"),
        ("123", 1, "1"),
        ("013", 1, "3"),
        # 4090s without links, two NUMA nodes: two of one of them.
        ("0345", 2, "45"),
        ("035", 2, "03"),
        # in the order of the list, as a variable may give it
        ("3102", 2, "10"),
        ("7", 1, "7"),
    ],
)
def test_neighbours_are_chosen(free, count, chosen):
    devices = [Device(index=number, key=f"gpu{number}", name="gpu") for number in free]
    assert [device.index for device in neighbours(devices, count)] == list(chosen)


def test_instances_of_one_gpu_are_neighbours():
    devices = [Device(index=index, key=index, name="mig") for index in ("0:1", "1:0", "1:1")]
    assert [device.index for device in neighbours(devices, 2)] == ["1:0", "1:1"]
