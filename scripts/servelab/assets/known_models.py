"""Models whose serving was published, by their name on the hub: size, number format, other weights, draft."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from servelab.core.yaml_file import read_yaml

BITS = {"fp8": 8, "int8": 8, "ascend": 8, "int4": 4.5, "mxfp4": 4.25, "nvfp4": 4.5}
"""Bits of a weight by number format, scales included; 16 of all others. `ascend` is Ascend's own INT8."""
_IN_NAMES = {
    "nvfp4": "(nv)?fp4",
    "mxfp4": "mxfp4",
    "fp8": "fp8",
    "int8": "int8|w8a8|w8a16|8bit|q8_0",
    "int4": r"int4|w4a16|awq|gptq|4bit|i?q[1-6]_\w+",
}
_BILLION = re.compile(r"(?<![a-z\d.])(\d+(?:\.\d+)?)b(?![a-z\d]|-\d+e)")
"""Parameters in a name such as `Llama-3.1-405B`; not in `17B-16E`, where they are those of a token."""


@cache
def _catalogue() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = read_yaml(Path(__file__).with_name("known_models.yaml"))
    return found


def known_entry(model: str) -> tuple[Mapping[str, Any], str]:
    """The entry of a model, or of the one whose weights it has in another format, and its number format.

    Of one without an entry, the format is that of its name.
    """
    catalogue = _catalogue()
    if entry := catalogue.get(model) or catalogue.get(model.removesuffix("-FP8")):
        return entry, "fp8" if model.endswith("-FP8") else entry.get("format", "bf16")
    found = ((each, kind) for each in catalogue.values() for kind in BITS if each.get(kind) == model)
    words = _IN_NAMES.items()
    named = (kind for kind, word in words if re.search(rf"(?<![a-z\d])({word})(?![a-z\d])", model.lower()))
    return next(found, ({}, next(named, "bf16")))


def known_parameters(model: str) -> float | None:
    """The number of a model's parameters, from its name if it has no entry; None if neither says it."""
    entry, _ = known_entry(model)
    named = _BILLION.search(model.rpartition("/")[2].lower())
    return 1e9 * (entry.get("billion") or (float(named[1]) if named else 0)) or None


def known_bytes(model: str) -> float | None:
    """Bytes of a model's weights; None if it is not known."""
    count = known_parameters(model)
    return count and count * BITS.get(known_entry(model)[1], 16) / 8


def active_share(model: str) -> float:
    """Share of the parameters that a token uses: 1 of a dense model, and of one that is not known."""
    entry, _ = known_entry(model)
    return float(entry["active"] / entry["billion"]) if entry.get("active") else 1.0
