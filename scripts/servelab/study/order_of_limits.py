"""Which of a model's configurations could be fastest, by the physical limit alone, before anything is measured.

The limit grows with the number of devices and falls with the bits of the weights that they read and multiply
(`servelab.engines.roofline`); all else in it is the same for configurations of one model under one load, or not known
yet. It orders what waits to be measured and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NARROWS = re.compile(r"quantiz|torchao", re.IGNORECASE)
_NUMBERS = re.compile(r"(?<![a-z\d])(?:i?q|w|int|fp|mxfp|nvfp|bf|f)(\d{1,2})(?!\d)|(awq|gptq)", re.IGNORECASE)
_BITS = 16.0
"""Of a weight whose format no name gives."""


def order_of_limit(spec: Mapping[str, Any]) -> float:
    """Devices / bits of a weight, of a run's `spec.json`; bits by the names of the formats that it gives, else 16."""
    bits = [float(found[1] or 4) for text in _formats(spec) for found in _NUMBERS.finditer(text)]
    return float(spec["hardware"]["count"]) / min([_BITS, *(each for each in bits if each)])


def _formats(spec: Mapping[str, Any]) -> Iterator[str]:
    """Texts that may name the format of the weights."""
    model = spec["model"]
    if model["quantization"]:
        yield model["quantization"]
    else:  # it is served as its source has it
        yield from (model["source"].get(key) or "" for key in ("id", "member", "file", "path"))
    for settings in (spec["options"], spec["arguments"]):
        yield from (str(value) for name, value in settings.items() if _NARROWS.search(name))
