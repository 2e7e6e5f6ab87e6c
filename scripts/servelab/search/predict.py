"""Predicts how fast a configuration serves a load: step times of kernel timings or of a roofline, and a scheduler.

Predicted, never measured. No part of it has run on a GPU. It does not see attention backends, graphs, asynchronous
scheduling and the HTTP front end: what differs only in these is predicted alike.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servelab.assets.model_work import ModelWork
from servelab.core.errors import Outage
from servelab.core.yaml_file import read_shipped
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import Tool
from servelab.machine.rates import DeviceRates
from servelab.metrics.tables.io import Floats
from servelab.study.predictions import KERNEL_TIMINGS, Predicted

ERRORS = {KERNEL_TIMINGS: 0.15, "roofline": 0.35}
"""Standard deviation of a prediction's logarithm by its source, after one scale for a study. Chosen, not fitted."""
_PROMPT_TOKENS = (0, 128, 512, 2048, 4096, 8192, 16384, 32768)
_SEQUENCES = (1, 4, 16, 32, 64, 128, 256, 512, 1024)
_ARITHMETIC, _MEMORY, _HOST_S = 0.5, 0.7, 0.002
"""Shares of the published rates that a roofline's step reaches, and the host's part of it."""
_SPLIT_GAIN, _BATCH_COST = 0.85, 1.05
"""A table is refused unless a step on twice the devices takes at most this share, and one of 256 sequences at least so
many times as long as one of one."""
SYSTEMS = read_shipped(Path(__file__).with_suffix(".yaml"))


class _KernelTimings:
    """The tables, as a program with an environment of its own."""

    name = KERNEL_TIMINGS
    host_variables = ()

    def version_command(self, python: Path) -> list[str]:
        """Command that prints their release."""
        return [str(python), "-c", "from importlib.metadata import version; print(version('aiconfigurator-core'))"]


TOOLS: Mapping[str, Tool] = {KERNEL_TIMINGS: _KernelTimings()}


@dataclass(frozen=True)
class PredictedServer:
    """A configuration, as far as predictions depend on it; sizes are of one copy of the model."""

    engine: str
    accelerator: str
    weights: str
    """`bfloat16`, `fp8`, `fp8_block`, or a name without tables."""
    kv_bytes: float
    tensor: int
    pipeline: int
    copies: int
    expert_parallel: bool
    sequences: int
    batched_tokens: int
    kv_tokens: int


@dataclass(frozen=True)
class Sent:
    """A load: requests, their mean tokens, and how many are in flight at most."""

    requests: float
    input_tokens: float
    output_tokens: float
    in_flight: float


@dataclass(frozen=True)
class Steps:
    """Milliseconds of a step, (prompt tokens, sequences)."""

    ms: Floats
    source: str

    def at(self, prompt_tokens: float, sequences: float) -> float:
        """Interpolated, and beyond the last value extended."""
        first, second = _weights(_PROMPT_TOKENS, prompt_tokens), _weights(_SEQUENCES, sequences)
        return float(sum(a * b * self.ms[i, j] for i, a in first for j, b in second))


def _weights(axis: Sequence[float], value: float) -> list[tuple[int, float]]:
    """Two neighbours on an axis, and the weight of each."""
    at = int(np.clip(np.searchsorted(axis, value) - 1, 0, len(axis) - 2))
    share = max(0.0, (value - axis[at]) / (axis[at + 1] - axis[at]))
    return [(at, 1 - share), (at + 1, share)]


def predict(served: PredictedServer, steps: Steps, sent: Sent) -> Predicted | None:
    """The figures of a load; None if the KV cache does not hold one request.

    Prompts fill the steps up to the engine's limit of tokens; the other steps only decode. With pipeline parallelism
    each part of the layers works on its own share of the sequences.
    """
    whole, copies, parts = sent.input_tokens + sent.output_tokens, served.copies, served.pipeline
    requests, in_flight = sent.requests / copies, min(sent.in_flight, sent.requests) / copies
    room = served.kv_tokens / (sent.input_tokens + 0.75 * sent.output_tokens)
    if served.kv_tokens < whole:
        return None
    running = max(1.0, min(served.sequences, in_flight, room, served.batched_tokens))
    each = max(1.0, running / parts)
    chunk = max(1.0, min(served.batched_tokens - each, requests * sent.input_tokens))
    prompt_steps = requests * sent.input_tokens / chunk
    decode_steps = requests * sent.output_tokens / each
    alone = max(0.0, decode_steps - prompt_steps)
    total_s = (prompt_steps * steps.at(chunk, each) + alone * steps.at(0, each)) / 1000 / parts
    waiting = max(0.0, in_flight - running) * (0.5 if in_flight >= requests else 1.0)
    first_s = steps.at(min(chunk, sent.input_tokens), each) / 1000 * max(1.0, sent.input_tokens / chunk)
    output = sent.requests * sent.output_tokens / total_s
    return Predicted(
        total_tokens_per_s=output * whole / sent.output_tokens,
        output_tokens_per_s=output,
        ttft_ms=1000 * (first_s + waiting * total_s / requests),
        tpot_ms=1000 * total_s / (requests * sent.output_tokens / running),
        source=steps.source,
        error_percent=round(100 * np.expm1(1.96 * ERRORS[steps.source])),
    )


def roofline_steps(served: PredictedServer, work: ModelWork, rates: DeviceRates, sent: Sent) -> Steps:
    """Steps at the shares of the published rates that servers reach."""
    bits = {"bfloat16": 16.0, "fp8": 8.0, "fp8_block": 8.0}.get(served.weights, work.bits)
    kv = served.kv_bytes * work.kv_values * (work.full_layers + work.window_layers)
    context = sent.input_tokens + sent.output_tokens / 2

    def seconds(prompt: float, count: float) -> float:
        tokens = prompt + count
        missed = (1 - work.experts_per_token / work.experts) ** tokens if work.experts else 0.0
        size = work.body_bytes + work.head_bytes + work.experts * (1 - missed) * work.expert_bytes
        size = size * bits / work.bits + kv * context * count
        operations = 2 * (tokens * work.active_parameters + count * work.head_parameters)
        compute = operations / rates.fastest(bits) / _ARITHMETIC
        return max(compute, size / rates.memory_bytes_per_s / _MEMORY) / served.tensor + _HOST_S

    ms = [[1000 * seconds(prompt, count) for count in _SEQUENCES] for prompt in _PROMPT_TOKENS]
    return Steps(np.array(ms), "roofline")


def query_of(
    served: PredictedServer, model: str, config: Mapping[str, Any] | None, sent: Sent
) -> dict[str, Any] | None:
    """What to ask the tables about; None if they have no such engine, device or format."""
    system = next((name for part, name in SYSTEMS if re.search(part, served.accelerator, re.IGNORECASE)), None)
    backend = ENGINES.get(served.engine).traits.forecast_name
    if system is None or backend is None or served.weights not in ("bfloat16", "fp8", "fp8_block"):
        return None
    experts = served.tensor if served.expert_parallel else 1
    return {
        "model": model,
        "config": config,
        "system": system,
        "backend": backend,
        "input_tokens": int(sent.input_tokens),
        "output_tokens": int(sent.output_tokens),
        "settings": {
            "tp_size": served.tensor,
            "moe_tp_size": served.tensor // experts,
            "moe_ep_size": experts,
            "gemm_quant_mode": served.weights,
            "moe_quant_mode": served.weights,
            "kvcache_quant_mode": "fp8" if served.kv_bytes == 1 else "bfloat16",
        },
    }


def asked_timings(python: Path, queries: Sequence[dict[str, Any]]) -> tuple[list[Steps | str], dict[str, Any]]:
    """Steps of each query, or why there are none; and the configuration of each model that the tables know."""
    content = json.dumps({"queries": queries, "prompt_tokens": _PROMPT_TOKENS, "sequences": _SEQUENCES})
    script = Path(__file__).with_name("kernel_timings.py")
    done = subprocess.run([python, "-I", script], input=content, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Outage(f"kernel timings: {python} ended with {done.returncode}: {done.stderr[-500:]}")
    answer = json.loads(done.stdout)
    found = [each.get("error") or Steps(np.array(each["ms"]), KERNEL_TIMINGS) for each in answer["steps"]]
    return found, answer["configs"]


def broken(steps_by_split: Mapping[int, Steps]) -> str | None:
    """Why a table is not used, by steps of the same kind on 1, 2, 4 … devices; None if it looks sound."""
    one, many = _SEQUENCES.index(1), _SEQUENCES.index(256)
    for split, steps in steps_by_split.items():
        decode = steps.ms[0]
        if not np.isfinite(steps.ms).all() or (steps.ms <= 0).any():
            return "has steps without a time"
        if decode[many] < _BATCH_COST * decode[one]:
            return f"256 sequences take {decode[many]:.1f} ms a step, and one {decode[one]:.1f}"
        twice = steps_by_split.get(2 * split)
        if twice is not None and twice.ms[0][one] > _SPLIT_GAIN * decode[one]:
            return f"a step takes {decode[one]:.1f} ms on {split} devices, and {twice.ms[0][one]:.1f} on {2 * split}"
    return None
