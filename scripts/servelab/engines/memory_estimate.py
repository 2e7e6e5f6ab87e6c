"""Estimates the memory for weights and KV cache on each accelerator.

Activations, compiled graphs and the engine's own buffers need more: for these, engines leave about a tenth of the
memory free.
"""

from __future__ import annotations

import re

from servelab.assets.model_shape import ModelShape
from servelab.engines.parallelism import Parallel

GIB = 2**30
MEMORY_SHARE = 0.9
"""Share of an accelerator's memory for weights and KV cache if a study does not set it: vLLM's default
(`--gpu-memory-utilization`), and about the same in other engines."""

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
"""Bytes per value by number format; ggml's formats are blocks of 32 values with their scales."""

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
"""GiB by a part of the accelerator's name, from the makers' data sheets; a 910C is two devices of this size each.
Boards that are sold in several sizes (A100, V100) are left out."""


def named_memory_bytes(accelerator: str) -> int | None:
    """Memory from an accelerator's name: the size in it (`A100 40GB`, `MIG 3g.40gb`), or that of its model.

    None if unknown.
    """
    size = re.search(r"\b\d+g\.(\d+)gb\b", accelerator, re.IGNORECASE)  # a MIG instance's own
    size = size or re.search(r"(\d+) ?Gi?B\b", accelerator, re.IGNORECASE)
    if size:
        return int(size[1]) * GIB
    return next((gib * GIB for name, gib in _ACCELERATORS if re.search(name, accelerator, re.IGNORECASE)), None)


def kv_number_bytes(kv_cache_dtype: str | None) -> float | None:
    """Bytes per value in the KV cache; 2 if no format is set, None for an unknown format."""
    name = (kv_cache_dtype or "auto").lower()
    return 1.0 if name.startswith(("fp8", "int8")) else _BYTES.get(name)


def weights_bytes_each(weights_bytes: float, parallel: Parallel) -> float:
    """Bytes of weights on each accelerator; each data-parallel copy holds all weights."""
    return weights_bytes / (parallel.tensor * parallel.pipeline)


def kv_bytes_each(shape: ModelShape, tokens: int, number_bytes: float, parallel: Parallel) -> float:
    """Bytes of KV cache for one sequence of `tokens` tokens, on each accelerator that computes it.

    2 × layers × KV heads × head size × bytes per value, for each token (Kwon et al., "Efficient memory management
    for large language model serving with PagedAttention", SOSP 2023, section 3). A layer with a sliding window keeps
    at most as many tokens as the window. Tensor parallelism spreads the KV heads, at least one per accelerator;
    pipeline parallelism spreads the layers.
    """
    heads = -(-shape.kv_heads // parallel.tensor)
    kept = shape.full_layers * tokens + shape.window_layers * min(tokens, shape.window_tokens)
    return kept / parallel.pipeline * heads * shape.values_per_kv_head * number_bytes


def gib(count: float) -> str:
    """Bytes as `65.5 GiB`."""
    return f"{count / GIB:.1f} GiB" if count < 1000 * GIB else f"{count / GIB:,.0f} GiB"
