"""Accelerators as engines see them when they choose their defaults: memory by the driver, compute capability."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


_KNOWN: tuple[tuple[str, float | None, float | None], ...] = (
    (r"B300", 268.6, 10.3),
    (r"G?B200", 178.4, 10.0),
    (r"RTX PRO 6000", 94.97, 12.0),
    (r"RTX 5090", 31.4, 12.0),
    (r"GH200 480GB", 95.6, 9.0),
    (r"H200|H20-3e", 139.8, 9.0),
    (r"H100 NVL", 93.1, 9.0),
    (r"H20\b", 95.6, 9.0),
    (r"H[18]00", 79.2, 9.0),
    (r"L40S?|RTX 6000 Ada", 44.4, 8.9),
    (r"L20\b", 44.4, 8.9),
    (r"L4\b", 22.0, 8.9),
    (r"RTX 4090", 23.5, 8.9),
    (r"RTX 3090", 23.6, 8.6),
    (r"A10G?\b", 22.0, 8.6),
    (r"A40\b|RTX A6000", 44.4, 8.6),
    (r"A[18]00.*40 ?GB", 39.4, 8.0),
    (r"A[18]00.*80 ?GB|A800", 79.2, 8.0),
    (r"A100", None, 8.0),
    (r"A30\b", 23.5, 8.0),
    (r"V100.*16", 15.8, 7.0),
    (r"V100.*32", 31.7, 7.0),
    (r"V100", None, 7.0),
    (r"T4\b", 14.6, 7.5),
    (r"MI325X", 255.7, None),
    (r"MI300X", 191.5, None),
    (r"910B4", 29.5, None),
    (r"910[BC]", 61.3, None),
    (r"310P", 43.2, None),
)
"""A part of the name → GiB as published start-up logs print it, compute capability. None was read by this project."""


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


def named_memory_bytes(accelerator: str) -> int | None:
    """Memory of the board of a name; None if it is not known."""
    size = board_of(accelerator).memory_gib
    return None if size is None else int(size * GIB)
