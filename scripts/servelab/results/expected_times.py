"""Seconds of a server start and of its loads, before anything like them ran: within a factor of two.

A start loads the weights from disk, compiles and captures graphs. A load is a roofline (`servelab.engines.roofline`) at
the share of the rates that servers reach: prompts are computed once, and each step of the answers reads all weights.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servelab.assets.known_models import active_share, known_bytes, known_parameters
from servelab.core.run_spec import MOST_STEPS, HardwareSpec, ModelSpec, RunSpec
from servelab.engines.accelerator_boards import board_of
from servelab.engines.adapters import ENGINES
from servelab.machine.rates import published_rates

_COMPILE_S, _DISK_BYTES_PER_S = 40.0, 1.2e9
"""Compilation and graphs of an engine that is not eager; a local NVMe disk that was not read lately."""
_STOP_S, _STEP_S = 5.0, 0.004
"""The end of a server; the host's part of each step."""
_ARITHMETIC, _MEMORY = 0.4, 0.6
"""Shares of the published rates that servers reach."""
_CPU_RATES = (50e9, 8e9)
"""Operations and bytes per second of one core, as servers reach them."""
_CHAT, _BOUNDED = (220, 200), (0.25, 0.5)
"""Tokens of prompt and answer where a workload does not bound them, and their share of a bound: few are long."""
_ASKED = {"embedded": (50, 16), "gsm8k": (110, 180)}
"""Question set → tokens of a question and its answer; `_CHAT` for a file of one's own."""


@dataclass(frozen=True)
class ExpectedTime:
    """Seconds on the clock of one server start and all that it serves."""

    start_s: float
    load_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.start_s + self.load_s + _STOP_S


def expected_time(visit: Sequence[RunSpec]) -> ExpectedTime | None:
    """The time of a server start that serves these runs; None if the size of the model is not known."""
    size = weights_bytes(visit[0].model)
    if size is None:
        return None
    start = min(start_s(visit[0], size), visit[0].protocol.startup_timeout_s)
    return ExpectedTime(start, sum(_run_s(spec, size) for spec in visit))


def weights_bytes(model: ModelSpec) -> float | None:
    """Bytes of the weights as served, from the model's source or its name; None if neither says it."""
    source = model.source
    size = known_bytes(source.id) if source.kind == "hub" else None
    if source.kind == "package":
        size = float(source.size_bytes)
    elif source.kind == "path" and (path := Path(source.path)).exists():
        files = [path] if path.is_file() else [*path.glob("*.safetensors"), *path.glob("*.gguf")]
        size = float(sum(file.stat().st_size for file in files)) or None
    widened = 16 / 5 if model.conversion and model.format == "safetensors" else 1.0
    return size and size * widened


def start_s(spec: RunSpec, size: float) -> float:
    """Seconds of a server's start with so many bytes of weights, whatever its limit."""
    traits = ENGINES.get(spec.engine.name).traits
    compile_s = _COMPILE_S if traits.compiles and not spec.options.get("enforce_eager") else 0.0
    return traits.starts_in_s + compile_s + size / _DISK_BYTES_PER_S


def _run_s(spec: RunSpec, size: float) -> float:
    """Seconds of all rounds of a run, with their warm-up."""
    protocol, parameters = spec.protocol, spec.workload.parameters
    one_s, all_s = served_s(spec, size)
    if protocol.request_rate != "inf":
        all_s = max(all_s, parameters.get("num_requests", 0) / protocol.request_rate)
    round_s = min(protocol.duration_s or all_s, protocol.round_timeout_s)
    rounds = MOST_STEPS / 3 if spec.capacity else protocol.rounds
    return rounds * (round_s + (one_s if protocol.warmup_requests else 0.0))


def served_s(spec: RunSpec, size: float) -> tuple[float, float]:
    """Seconds of one request alone, and of a round, with so many bytes of weights."""
    operations, bandwidth = _rates(spec.hardware)
    prompt, answer = mean_lengths(spec.workload.parameters)
    count = float(spec.workload.parameters.get("num_requests", 1))
    limit = spec.options.get("max_num_seqs")
    in_flight = min(count, spec.protocol.max_concurrency or 256, limit if isinstance(limit, int) else 256)
    bits = 5 if spec.model.format == "gguf" else 16  # GGUF files have 4 to 6
    work = 2 * (known_parameters(spec.model.id) or 8 * size / bits) * active_share(spec.model.id)

    def step_s(sequences: float) -> float:
        return size / bandwidth + sequences * work / operations + _STEP_S

    prefill_s = prompt * work / operations
    return prefill_s + answer * step_s(1), count * (prefill_s + answer * step_s(in_flight) / in_flight)


def mean_lengths(parameters: Mapping[str, Any]) -> tuple[float, float]:
    """Mean tokens of a prompt and an answer."""
    if "questions" in parameters:
        return _ASKED.get(parameters["questions"], _CHAT)
    found = []
    for part, usual, share in zip(("input", "output"), _CHAT, _BOUNDED, strict=True):
        exact, most = parameters.get(f"{part}_tokens"), parameters.get(f"max_{part}_tokens")
        found.append(float(exact or min(usual, (most or math.inf) * share)))
    return found[0], found[1]


def _rates(hardware: HardwareSpec) -> tuple[float, float]:
    """Operations and bytes per second that a server reaches on all its devices."""
    if hardware.device == "cpu":
        cores = len(os.sched_getaffinity(0))
        return _CPU_RATES[0] * cores, _CPU_RATES[1] * cores
    rates = published_rates(hardware.accelerator)
    if rates:
        return hardware.count * rates.fastest(16) * _ARITHMETIC, hardware.count * rates.memory_bytes_per_s * _MEMORY
    is_large = (board_of(hardware.accelerator).memory_gib or 0) > 60
    operations, bandwidth = (400e12, 2e12) if is_large else (150e12, 0.9e12)
    return hardware.count * operations * _ARITHMETIC, hardware.count * bandwidth * _MEMORY
