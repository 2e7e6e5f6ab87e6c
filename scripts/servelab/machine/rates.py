"""Highest rates of accelerators, as makers publish them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
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


PUBLISHED = tuple(
    (
        family,
        variant,
        DeviceRates(
            name=name,
            memory_bytes_per_s=memory * TERA,
            operations_per_s={bits: rate * TERA for bits, rate in operations.items()},
            cache_bytes=cache * MIB,
            source=group["source"],
        ),
    )
    for group in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    for family, variant, name, memory, operations, cache in group["devices"]
)
"""Pattern of a device's family, pattern of its variant, its rates."""


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
