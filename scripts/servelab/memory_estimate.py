"""Estimate of the memory that weights and KV cache take on each accelerator.

Activations, compiled graphs and what an engine keeps for itself come on top: they are the reason why engines leave
about a tenth of the memory alone.
"""

from __future__ import annotations

import re

from servelab.engines.layout import Parallel
from servelab.model_facts import ModelShape

GIB = 2**30
MEMORY_SHARE = 0.9
"""Share of an accelerator's memory for weights and KV cache where a study does not set it: vLLM's own default
(`--gpu-memory-utilization`), and about what the other engines take."""

_BYTES = {
    "auto": 2.0,
    "bfloat16": 2.0,
    "bf16": 2.0,
    "float16": 2.0,
    "f16": 2.0,
    "f32": 4.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""Bytes of a number by its format; ggml's are blocks of 32 with their scales."""

_ACCELERATORS: tuple[tuple[str, int], ...] = (
    (r"\bB300\b", 288),
    (r"\bB200\b", 180),
    (r"\bMI325X\b", 256),
    (r"\bMI300X\b", 192),
    (r"\bH200\b", 141),
    (r"\bH100 NVL\b", 94),
    (r"\b(H100|H800|A800)\b", 80),
    (r"\bH20\b", 96),
    (r"\b(L40S?|A40|RTX 6000 Ada|RTX A6000)\b", 48),
    (r"\b(L4|A10G?|A30|RTX [34]090)\b", 24),
    (r"\bT4\b", 16),
    (r"\b910B4\b", 32),
    (r"\b910B", 64),
    (r"\b910C\b", 64),
)
"""GiB of accelerators by a part of their name, as their makers' data sheets give it; a 910C is two devices of so much.
Names of boards that come with more than one size (A100, V100) are left out."""


def named_memory_bytes(accelerator: str) -> int | None:
    """Memory by an accelerator's name: the size in it (`A100 40GB`), else that of its model; None if unknown."""
    size = re.search(r"(\d+) ?Gi?B\b", accelerator, re.IGNORECASE)
    if size:
        return int(size[1]) * GIB
    return next((gib * GIB for name, gib in _ACCELERATORS if re.search(name, accelerator, re.IGNORECASE)), None)


def kv_number_bytes(kv_cache_dtype: str | None) -> float | None:
    """Bytes of a number in the KV cache; 2 where nothing is said, None for a format that is not known here."""
    name = (kv_cache_dtype or "auto").lower()
    return 1.0 if name.startswith(("fp8", "int8")) else _BYTES.get(name)


def weights_bytes_each(weights_bytes: float, parallel: Parallel) -> float:
    """Bytes of weights on each accelerator: copies by data parallelism hold them all."""
    return weights_bytes / (parallel.tensor * parallel.pipeline)


def kv_bytes_each(shape: ModelShape, tokens: int, number_bytes: float, parallel: Parallel) -> float:
    """Bytes of the KV cache that one sequence of so many tokens takes on each accelerator that computes it.

    2 × layers × KV heads × head size × bytes of a number, for each token (Kwon et al., "Efficient memory management
    for large language model serving with PagedAttention", SOSP 2023, section 3). A layer with a sliding window keeps
    no more tokens than the window has. Tensor parallelism deals out the KV heads, at least one to each accelerator;
    pipeline parallelism deals out the layers.
    """
    heads = -(-shape.kv_heads // parallel.tensor)
    kept = shape.full_layers * tokens + shape.window_layers * min(tokens, shape.window_tokens)
    return kept / parallel.pipeline * heads * shape.values_per_kv_head * number_bytes


def gib(count: float) -> str:
    """Bytes as `65.5 GiB`."""
    return f"{count / GIB:.1f} GiB" if count < 1000 * GIB else f"{count / GIB:,.0f} GiB"
