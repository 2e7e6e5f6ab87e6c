"""The physical limit of serving a load: the least time in which devices can compute it and read what it needs.

A roofline (Williams et al., CACM 2009): serving takes at least as long as all multiplications at the devices' highest
rate, and as all bytes read at their highest bandwidth; the two may overlap. Activations, norms, embeddings,
communication, warm-up and waiting are left out, so that nothing served is faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from servelab.assets.model_work import ModelWork
from servelab.machine.rates import DeviceRates

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """The requests of a round that were served; one value for each request, in tokens."""

    prompts: Counts
    """Prompt tokens that were computed: without those from a cache."""
    cached: Counts
    """Prompt tokens from a cache: not computed, but attended to."""
    outputs: Counts
    in_flight: float
    """Most sequences in the batch at once."""
    is_mean: bool = False
    """Whether each request stands for the mean, because single lengths are not known."""


@dataclass(frozen=True)
class Formats:
    """In what numbers the model is served."""

    weight_bits: float | None = None
    """Bits of a weight that the engine narrows when it loads the model; None if it serves them as stored."""
    kv_bytes: float | None = 2.0
    """Bytes of a value in the KV cache; None if unknown, and its bytes then do not count."""
    tokens_per_pass: float = 1.0
    """Output tokens that one pass over the weights can give a sequence: more than 1 with speculative decoding."""


@dataclass(frozen=True)
class Least:
    """The least time for a load."""

    compute_s: float
    memory_s: float

    @property
    def seconds(self) -> float:
        """The larger of the two."""
        return max(self.compute_s, self.memory_s)

    @property
    def by(self) -> str:
        """The limit that sets it."""
        return "arithmetic" if self.compute_s >= self.memory_s else "memory bandwidth"


def least_time(
    work: ModelWork, served: Served, rates: DeviceRates, devices: int, formats: Formats, *, fewest_experts: bool
) -> Least:
    """The least time in which so many devices can serve the requests, however the model is split over them.

    With `fewest_experts` all tokens of a pass use the same experts; otherwise each draws its own, and the expected
    number of different ones is read.
    """
    bits = min(work.bits, formats.weight_bits or work.bits)
    width = min(bits, 8 * formats.kv_bytes) if formats.kv_bytes else min(bits, 8.0)
    # a multiplication and an addition per parameter and token; the last output token is not computed any further
    tokens = served.prompts.sum() + np.maximum(served.outputs - 1, 0).sum()
    operations = float(2 * work.active_parameters * tokens + 2 * work.head_parameters * served.outputs.sum())
    operations += work.attention_operations * _attended(work, served)
    size = _weight_bytes(work, served, formats, bits / work.bits, rates.cache_bytes * devices, fewest_experts)
    if size and formats.kv_bytes:  # caches that hold all weights may hold keys and values too
        size += formats.kv_bytes * work.kv_values * _kv_read(work, served) / formats.tokens_per_pass
    return Least(operations / (devices * rates.fastest(width)), size / (devices * rates.memory_bytes_per_s))


def _attended(work: ModelWork, served: Served) -> float:
    """Pairs of a token and one before it, itself included, over all requests and layers.

    Pairs grow faster than the length, so requests of mean length have the fewest; within a window they do not.
    """
    first, past = served.cached, served.cached + served.prompts
    last = past + np.maximum(served.outputs - 1, 0)
    full = _pairs(last, math.inf) - _pairs(first, math.inf)
    pairs = work.full_layers * full.sum()
    if work.window_layers and not served.is_mean:
        pairs += work.window_layers * (_pairs(last, work.window_tokens) - _pairs(first, work.window_tokens)).sum()
    return float(pairs)


def _pairs(length: Counts, window: float) -> Counts:
    """Sum of min(position, window) over positions 1 … length."""
    inside = np.minimum(length, window)
    pairs: Counts = inside * (inside + 1) / 2
    return pairs if math.isinf(window) else pairs + (length - inside) * window


def _weight_bytes(
    work: ModelWork, served: Served, formats: Formats, narrowed: float, cache: float, fewest_experts: bool
) -> float:
    """Bytes of weights that all passes read; what fits into the caches is read once.

    Passes: at least output tokens / sequences at once, and the longest output's tokens, each divided by the tokens that
    speculative decoding can accept.
    """
    total, batch = float(served.outputs.sum()), max(served.in_flight, 1.0)
    full = total / batch / formats.tokens_per_pass
    longest = (
        (float(served.outputs.mean()) if served.is_mean else float(served.outputs.max(initial=0.0))) if total else 0
    )
    passes = max(full, longest / formats.tokens_per_pass)

    def read(sequences: float) -> float:
        experts = float(work.experts_per_token)
        if work.experts and not fewest_experts:
            missed = (1 - work.experts_per_token / work.experts) ** max(sequences, 1.0)
            experts = work.experts * (1 - missed)
        size = work.body_bytes + work.head_bytes + experts * work.expert_bytes
        return max(narrowed * size - cache, 0.0)

    return full * read(batch) + (passes - full) * read(1.0)


def _kv_read(work: ModelWork, served: Served) -> float:
    """Tokens whose keys and values later output tokens read, over all layers; tokens from a cache do not count."""
    past, last = served.prompts, served.prompts + np.maximum(served.outputs - 1, 0)
    read = work.full_layers * (_pairs(last, math.inf) - _pairs(past, math.inf)).sum()
    if work.window_layers and not served.is_mean:
        read += work.window_layers * (_pairs(last, work.window_tokens) - _pairs(past, work.window_tokens)).sum()
    return float(read)


def number(counts: Sequence[float]) -> Counts:
    """Counts as an array, 0 for what is not known."""
    return np.nan_to_num(np.asarray(counts, dtype=np.float64))
