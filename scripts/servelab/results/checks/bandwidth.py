"""Is the device the one it is said to be? Decode steps read all weights: how fast they do shows its bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servelab.machine.rates import TERA, variants
from servelab.metrics.tables.io import maximum, present
from servelab.results.checks import Evidence, Saw, check, not_applicable, ok, suspect
from servelab.results.physical_limit import PhysicalLimit

_LEAST_SHARE = 0.55
"""Of the published bandwidth: servers reach 65 to 85 % with 16-bit weights."""
_SHORTEST_S = 0.008
"""The least time of a step whose duration the device sets, and not the host."""
_CHUNK, _MIXED = 4096, 0.5
"""Prompt tokens that a step computes, and the share of steps with such tokens up to which the median has none."""
_BOUND = 3.0
"""Times by which reading takes longer than computing, in a step that the memory's bandwidth sets."""
_REASONS = {2: "clocks set by the user", 4: "power cap", 8 | 32 | 64 | 128: "thermal or hardware slowdown"}
"""NVML's `nvmlClocksEventReason…` bits."""


@dataclass(frozen=True)
class Decoding:
    """How the answers of a run came."""

    output_tokens_per_s: float
    tpot_ms: float
    median_gap_ms: float
    """Median time between tokens: of a step without prompts, where most steps have none."""
    input_tokens: float
    """Of a request."""
    output_tokens: float


def judge_device(limit: PhysicalLimit, accelerator: str, seen: Decoding | None, cause: str = "") -> Saw:
    """Result of the check, for measured runs and for logs."""
    step = limit.step
    if step is None or seen is None or not seen.output_tokens:
        return not_applicable("needs TPOT, ITL, and a dense model in 16 bits on one accelerator that is known")
    sequences = max(1.0, seen.output_tokens_per_s * seen.tpot_ms / 1000)
    read = step.weight_bytes + sequences * step.kv_bytes * (seen.input_tokens + seen.output_tokens / 2)
    least = read / step.rates.memory_bytes_per_s
    mixed = sequences * seen.input_tokens / seen.output_tokens / _CHUNK
    if least < _SHORTEST_S or mixed > _MIXED or least < _BOUND * sequences * step.operations / step.rates.fastest(16):
        return not_applicable("memory bandwidth alone does not set the time of its steps")
    if seen.median_gap_ms < 1000 * least / 1.5:
        return not_applicable("tokens come several at a time")
    speed = 1000 * read / seen.median_gap_ms
    found = [f"{100 * speed / each.memory_bytes_per_s:.0f} % of {each.name}" for each in variants(accelerator)]
    text = f"a step of {seen.median_gap_ms:.3g} ms reads {speed / TERA:.2f} TB/s: {', '.join(found)}"
    if speed >= _LEAST_SHARE * step.rates.memory_bytes_per_s:
        return ok(text)
    return suspect(f"{text}; {cause or 'a slower card, a power cap, throttling or another tenant?'}")


@check("device_speed")
def _device_speed(evidence: Evidence) -> Saw:
    place = evidence.limit.step.accelerator if evidence.limit.step else ""
    gap = evidence.summary.get("itl_ms", {}).get("median")
    rate, tpot = evidence.mean("output_tokens_per_s"), evidence.mean("tpot_ms")
    done = evidence.successes
    if gap is None or rate is None or tpot is None or not len(done):
        return judge_device(evidence.limit, place, None)
    lengths = (float(np.nanmean(done[name])) for name in ("input_tokens", "output_tokens"))
    return judge_device(evidence.limit, place, Decoding(rate, tpot, float(gap), *lengths), _cause(evidence))


def _cause(evidence: Evidence) -> str:
    """What telemetry says of slow clocks; empty if nothing."""
    masks = present(evidence.samples("throttle_reasons")["value"]).astype(np.int64)
    shares = {word: float(np.mean((masks & bits) != 0)) if len(masks) else 0.0 for bits, word in _REASONS.items()}
    found = [f"{word} in {100 * share:.0f} % of the samples" for word, share in shares.items() if share > 0.05]
    clocks = evidence.samples("clock_memory_mhz")["value"]
    if found and len(clocks):
        found.append(f"memory clock at most {maximum(clocks):.0f} MHz")
    return "; ".join(found)
