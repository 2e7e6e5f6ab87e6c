"""Accelerators as engines see them when they choose their defaults: memory by the driver, compute capability."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from servelab.core.yaml_file import read_shipped

GIB = 2**30


@dataclass(frozen=True)
class AcceleratorBoard:
    """One accelerator."""

    name: str
    memory_gib: float | None
    """Memory that a driver reports, in GiB; None if it is not known."""
    capability: float | None = None
    """NVIDIA's compute capability; None for other makers, or if it is not known."""
    is_cpu: bool = False

    @property
    def has_fp8(self) -> bool:
        """Whether it multiplies FP8 numbers: from Ada (8.9) on."""
        return self.capability is not None and self.capability >= 8.9

    @property
    def has_fp4(self) -> bool:
        """Whether it multiplies FP4 numbers: from Blackwell (10.0) on."""
        return self.capability is not None and self.capability >= 10

    @property
    def has_switch(self) -> bool:
        """Whether NVSwitch sums for it, as for data-centre boards from Hopper (9.0) on: NCCL keeps buffers for that."""
        return self.capability is not None and 9 <= self.capability < 12


_KNOWN = read_shipped(Path(__file__).with_suffix(".yaml"))


def board_of(accelerator: str, *, is_cpu: bool = False) -> AcceleratorBoard:
    """The board of a name; with the size in the name (`A100 40GB`, `MIG 3g.40gb`), or none, if it is not known."""
    if is_cpu:
        return AcceleratorBoard(accelerator, None, is_cpu=True)
    part_of = re.search(r"\b\d+g\.(\d+)gb\b", accelerator, re.IGNORECASE)  # a MIG instance's own
    named = part_of or re.search(r"(\d+) ?Gi?B\b", accelerator, re.IGNORECASE)
    for part, memory_gib, capability in _KNOWN:
        if re.search(part, accelerator, re.IGNORECASE):
            return AcceleratorBoard(accelerator, float(part_of[1]) if part_of else memory_gib, capability)
    return AcceleratorBoard(accelerator, float(named[1]) if named else None)
