"""Highest rates of accelerators, as makers publish them."""

from __future__ import annotations

import re

from pydantic import Field

from servelab.core.files import JsonPart

TERA = 1e12
MIB = 2**20


class DeviceRates(JsonPart):
    """Highest rates of one device."""

    name: str = Field(description="The device.")
    memory_bytes_per_s: float = Field(description="Bandwidth of its memory, in bytes per second.")
    operations_per_s: dict[int, float] = Field(
        description="Bits of a number → multiplications and additions per second, dense."
    )
    cache_bytes: float = Field(description="Its last-level cache: what is there need not be read from memory.")
    source: str = Field(description="Where the figures are from.")

    def fastest(self, bits: float) -> float:
        """Operations per second at most on numbers of `bits` bits: they may be computed in any wider format.

        Numbers wider than the widest format count as it: engines round such weights.
        """
        usable = [rate for width, rate in self.operations_per_s.items() if width >= bits]
        return max(usable) if usable else self.operations_per_s[max(self.operations_per_s)]


_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet and Hopper architecture white paper"
_HOPPER_200 = "NVIDIA H200 Tensor Core GPU data sheet"
_AMPERE = "NVIDIA A100 Tensor Core GPU data sheet and Ampere architecture white paper"
_ATLAS = (
    "Huawei, Atlas 800T A2 white paper: 313 and 376 TFLOPS FP16, 64 GB HBM2e, 1.6 TB/s; INT8: at most twice that; L2: "
    "platform files of Huawei's CANN"
)
_ATLAS_I = "Gitee AI, Ascend 910B: 280 TFLOPS FP16, 560 TOPS INT8; bandwidth and L2: those of the largest 910B"
_ATLAS_A3 = "Huawei Connect 2025: Ascend 910C, 800 TFLOPS FP16 and 3.2 TB/s, for two dies; each is a device"


def _rates(
    name: str, memory_tb_per_s: float, tera_operations: dict[int, float], cache_mib: float, source: str
) -> DeviceRates:
    return DeviceRates(
        name=name,
        memory_bytes_per_s=memory_tb_per_s * TERA,
        operations_per_s={bits: rate * TERA for bits, rate in tera_operations.items()},
        cache_bytes=cache_mib * MIB,
        source=source,
    )


PUBLISHED: tuple[tuple[str, str, DeviceRates], ...] = (
    (r"\bH100\b", r"SXM|HBM3", _rates("NVIDIA H100 SXM", 3.352, {16: 989.5, 8: 1979}, 50, _HOPPER)),
    (r"\bH100\b", r"PCIE", _rates("NVIDIA H100 PCIe", 2.04, {16: 756.5, 8: 1513}, 50, _HOPPER)),
    (r"\bH100\b", r"NVL", _rates("NVIDIA H100 NVL", 3.94, {16: 835.5, 8: 1671}, 60, _HOPPER)),
    (r"\bH200\b", r"SXM", _rates("NVIDIA H200 SXM", 4.9, {16: 989.5, 8: 1979}, 60, _HOPPER_200)),
    (r"\bH200\b", r"NVL", _rates("NVIDIA H200 NVL", 4.9, {16: 835.5, 8: 1671}, 60, _HOPPER_200)),
    (r"\bA100\b", r"40 ?G", _rates("NVIDIA A100 40GB", 1.555, {16: 312, 8: 624, 4: 1248}, 40, _AMPERE)),
    (
        r"\bA100\b",
        r"80 ?GB? PCIE|PCIE.*80",
        _rates("NVIDIA A100 80GB PCIe", 1.935, {16: 312, 8: 624, 4: 1248}, 40, _AMPERE),
    ),
    (r"\bA100\b", r"SXM.*80|80.*SXM", _rates("NVIDIA A100 80GB SXM", 2.039, {16: 312, 8: 624, 4: 1248}, 40, _AMPERE)),
    (r"910B(?!1)", r"910B2", _rates("Ascend 910B2", 1.64, {16: 376, 8: 752}, 192, _ATLAS)),
    (r"910B(?!1)", r"910B3", _rates("Ascend 910B3", 1.64, {16: 313, 8: 640}, 192, _ATLAS)),
    (r"910B(?!1)", r"910B4", _rates("Ascend 910B4", 1.64, {16: 280, 8: 560}, 192, _ATLAS_I)),
    (r"910C", r"910C", _rates("Ascend 910C, one die", 1.64, {16: 400, 8: 800}, 192, _ATLAS_A3)),
)
"""Pattern of a device's family, pattern of its variant, its rates. A figure that a source rounds is rounded up. An
H100's L2 has 50 MiB in the SXM and PCIe boards; 60 MiB is that of the whole chip. For 910B1 we know no published
figures."""


def variants(name: str) -> list[DeviceRates]:
    """The rates of each device that a name may mean."""
    family = [(variant, rates) for of, variant, rates in PUBLISHED if re.search(of, name, re.IGNORECASE)]
    found = [rates for variant, rates in family if re.search(variant, name, re.IGNORECASE)]
    return found or [rates for _, rates in family]


def published_rates(name: str) -> DeviceRates | None:
    """The rates of a device by its name; None if nothing is known of it.

    If the name fits several variants, such as `NVIDIA H100`, each rate is the largest of theirs, so that the bound
    holds for all.
    """
    found = variants(name)
    if len(found) < 2:
        return found[0] if found else None
    widths = {bits for rates in found for bits in rates.operations_per_s}
    return DeviceRates(
        name=f"the fastest of {', '.join(rates.name for rates in found)}",
        memory_bytes_per_s=max(rates.memory_bytes_per_s for rates in found),
        operations_per_s={bits: max(rates.operations_per_s.get(bits, 0.0) for rates in found) for bits in widths},
        cache_bytes=max(rates.cache_bytes for rates in found),
        source="; ".join(dict.fromkeys(rates.source for rates in found)),
    )
