"""The physical limit of a run: how fast its devices could serve the same requests with this model at most.

It decides nothing; a figure above it is impossible (`servelab.results.checks.server`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Any

import numpy as np

from servelab.assets.model_work import ModelWork
from servelab.core.run_spec import ArgumentValue, RunSpec
from servelab.engines.adapters import ENGINES, Engine
from servelab.engines.memory import kv_number_bytes
from servelab.engines.roofline import Formats, Least, Served, least_time
from servelab.machine.rates import DeviceRates, published_rates
from servelab.measure.run_files import RunStatus
from servelab.metrics.definitions import RunData
from servelab.metrics.tables.io import RecordArray, by_round, succeeded
from servelab.metrics.timeline import in_flight

LIMIT_COLUMNS = ["limit_total_tokens_per_s", "limit_output_tokens_per_s", "share_of_limit", "limit_note"]
"""Columns of schemas.STAGE_TABLE."""

_DISTINCT = ("random", "sharegpt")
"""Kinds of workload whose prompts have next to nothing in common; caches are emptied before each round."""
Arguments = Mapping[str, ArgumentValue]


@dataclass(frozen=True)
class DecodeStep:
    """The work of one decode step of a dense model in 16 bits on one device."""

    accelerator: str
    rates: DeviceRates
    weight_bytes: float
    kv_bytes: float
    """Of a token of context."""
    operations: float
    """Of a sequence, without attention."""


@dataclass(frozen=True)
class PhysicalLimit:
    """The limit of a run, mean over its rounds; None where model or device are not known."""

    note: str
    """Its sources, or the reason why there is none."""
    total_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    share: float | None = None
    """Least time / time taken."""
    highest_share: float | None = None
    """The largest in any round, or by any printed rate."""
    certain_share: float | None = None
    """The same by the bound that holds however tokens choose experts."""
    step: DecodeStep | None = None
    """None where more than the memory's bandwidth sets the time of a step."""

    @property
    def columns(self) -> dict[str, Any]:
        """Its `LIMIT_COLUMNS`."""
        values = (self.total_tokens_per_s, self.output_tokens_per_s, self.share, self.note)
        return dict(zip(LIMIT_COLUMNS, values, strict=True))


@dataclass(frozen=True)
class RoundServed:
    """Tokens that a round served, and their rate."""

    served: Served
    input_tokens: float
    output_tokens: float
    duration_s: float
    total_tokens_per_s: float | None = None
    """The rate as a log prints it."""
    output_tokens_per_s: float | None = None


@dataclass(frozen=True)
class Serving:
    """How a model is served, as far as it changes the limit."""

    formats: Formats
    most_sequences: float
    """Most sequences in the batch, by the engine's own limit."""
    caches_prefixes: bool | None
    """Whether prompts may come from a cache; None if nothing says so."""
    remarks: tuple[str, ...] = ()


_NARROWS = re.compile(r"quantiz|torchao", re.IGNORECASE)
_DRAFTS = re.compile(r"specul|draft|eagle|medusa|lookahead|\bmtp\b", re.IGNORECASE)
_DRAFTED = re.compile(r"num_speculative_tokens\W+(\d+)")


def serving(engine: str, work: ModelWork, options: Arguments, arguments: Arguments, count: int) -> Serving:
    """Facts from an engine's options and arguments; those left open raise the limit."""
    adapter = ENGINES.get(engine) if engine in ENGINES.names() else None
    typed = {name: _typed(value) for name, value in arguments.items()}

    def setting(option: str) -> ArgumentValue:
        return _typed(adapter.setting(option, options, typed) if adapter else options.get(option))

    narrowing = [f"{name} {value}" for name, value in typed.items() if _NARROWS.search(name)]
    bits = None if not narrowing else 8.0 if re.search(r"fp8|int8|w8", narrowing[0], re.IGNORECASE) else 4.0
    passes, remarks = _tokens_per_pass(options.get("speculative_decoding"), options.get("speculative_tokens"), typed)
    most = setting("max_num_seqs")
    copies = adapter.parallel(options, typed, count).data if adapter else 1
    caching = setting("prefix_caching")
    return Serving(
        Formats(bits, _kv_bytes(setting("kv_cache_dtype"), typed, adapter, min(bits or 16.0, work.bits)), passes),
        float(most * copies) if isinstance(most, int) else inf,
        caching if isinstance(caching, bool) else None,
        remarks,
    )


def _typed(value: ArgumentValue) -> ArgumentValue:
    """A number that a command gives as text, as a number."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _kv_bytes(dtype: ArgumentValue, arguments: Arguments, adapter: Engine | None, bits: float) -> float | None:
    """Bytes of a value in the KV cache; with quantised weights, an engine may narrow it on its own."""
    if (
        dtype is None
        and adapter is None
        and any(re.search(r"kv|cache.type", name, re.IGNORECASE) for name in arguments)
    ):
        return None
    if dtype in (None, "auto"):
        return 2.0 if bits >= 16 else 1.0
    return kv_number_bytes(dtype) if isinstance(dtype, str) else None


def _tokens_per_pass(
    method: ArgumentValue, drafted: ArgumentValue, arguments: Arguments
) -> tuple[float, tuple[str, ...]]:
    """Output tokens that a pass over the weights can give a sequence, and what to say about it."""
    given = [f"{name} {value}" for name, value in arguments.items() if _DRAFTS.search(f"{name} {value}")]
    if method is None and not given:
        return 1.0, ()
    found = [int(each) for text in given for each in _DRAFTED.findall(text)]
    if isinstance(drafted, int):
        found.append(drafted)
    if not found:
        return inf, ("speculative decoding of unknown length: no bound from memory",)
    return max(found) + 1.0, (f"speculative decoding: up to {max(found) + 1} tokens a pass",)


def limit_of_run(spec: RunSpec, status: RunStatus, data: RunData) -> PhysicalLimit:
    """The limit of a run that was measured here."""
    name = (status.place and status.place.accelerator) or spec.hardware.accelerator
    rates = published_rates(name)
    if status.work is None:
        return PhysicalLimit(note="the model's size is not known")
    if rates is None:
        return PhysicalLimit(note=f"how fast `{name}` is at most is not known")
    how = serving(spec.engine.name, status.work, spec.options, spec.arguments, spec.hardware.count)
    rounds, prompts = [], True
    for number, requests in by_round(data.requests).items():
        found = _served(requests, how, spec)
        prompts = prompts and found is not None
        counted = data.rounds.get(number)
        if counted is not None and len(counted.successes) and counted.duration_s > 0:
            tokens = counted.tokens - counted.output_tokens, counted.output_tokens
            rounds.append(RoundServed(found or _outputs_only(requests, how), *tokens, counted.duration_s))
    remarks = how.remarks if prompts else (*how.remarks, "prompts may have come from a cache and do not count")
    limit = limit_of(status.work, rates, spec.hardware.count, how.formats, rounds, remarks)
    return replace(limit, step=decode_step(status.work, name, rates, spec.hardware.count, how.formats))


def decode_step(
    work: ModelWork, accelerator: str, rates: DeviceRates, count: int, formats: Formats
) -> DecodeStep | None:
    """The work of a step; None where experts, several devices, narrow weights or drafts take time of their own."""
    if count > 1 or work.experts or work.window_layers or formats.kv_bytes is None:
        return None
    if formats.tokens_per_pass != 1 or min(work.bits, formats.weight_bits or 16) < 16:
        return None
    kv_bytes = formats.kv_bytes * work.kv_values * work.full_layers
    operations = 2 * (work.active_parameters + work.head_parameters)
    return DecodeStep(accelerator, rates, work.body_bytes + work.head_bytes, kv_bytes, operations)


def _served(requests: RecordArray, how: Serving, spec: RunSpec) -> Served | None:
    """Work of a round; None if an unknown part of its prompts came from a cache."""
    done = succeeded(requests[requests["phase"] != "settle"])
    cached = done["cached_tokens"]
    if np.isnan(cached).any():
        if how.caches_prefixes is not False and spec.workload.kind not in _DISTINCT:
            return None
        cached = np.zeros(len(done))
    inputs, outputs = np.nan_to_num(done["input_tokens"]), np.nan_to_num(done["output_tokens"])
    cached = np.minimum(cached, inputs)
    return Served(inputs - cached, cached, outputs, _at_once(requests, how))


def _outputs_only(requests: RecordArray, how: Serving) -> Served:
    outputs = np.nan_to_num(succeeded(requests[requests["phase"] != "settle"])["output_tokens"])
    return Served(np.zeros(len(outputs)), np.zeros(len(outputs)), outputs, _at_once(requests, how))


def _at_once(requests: RecordArray, how: Serving) -> float:
    return min(how.most_sequences, float(in_flight(requests["sent_s"], requests["end_s"]).counts.max(initial=1.0)))


def limit_of(
    work: ModelWork,
    rates: DeviceRates,
    count: int,
    formats: Formats,
    rounds: Sequence[RoundServed],
    remarks: Iterable[str] = (),
) -> PhysicalLimit:
    """The limit of rounds on so many devices."""
    found = [(each, *_least(work, rates, count, formats, each.served)) for each in rounds]
    found = [(each, least, certain) for each, least, certain in found if least.seconds > 0]
    if not found:
        return PhysicalLimit(note="nothing bounds these requests: " + "; ".join(remarks or ["there are none"]))
    largest = max(found, key=lambda each: each[1].seconds)[1]
    experts = [f"experts read by {rounds[0].served.in_flight:,.0f} tokens at once as if drawn evenly"]
    return PhysicalLimit(
        note="; ".join(
            [
                f"{largest.by} of {f'{count} × ' if count > 1 else ''}{rates.name} (arithmetic "
                f"{largest.compute_s:.3g} s, memory {largest.memory_s:.3g} s)",
                *(experts if work.experts and largest.by != "arithmetic" else []),
                *remarks,
            ]
        ),
        total_tokens_per_s=fmean((each.input_tokens + each.output_tokens) / least.seconds for each, least, _ in found),
        output_tokens_per_s=fmean(each.output_tokens / least.seconds for each, least, _ in found),
        share=fmean(least.seconds / each.duration_s for each, least, _ in found),
        highest_share=max(_share(each, least.seconds) for each, least, _ in found),
        certain_share=max(_share(each, certain.seconds) for each, _, certain in found),
    )


def _least(work: ModelWork, rates: DeviceRates, devices: int, formats: Formats, served: Served) -> tuple[Least, Least]:
    return tuple(  # type: ignore[return-value]
        least_time(work, served, rates, devices, formats, fewest_experts=fewest) for fewest in (False, True)
    )


def _share(each: RoundServed, least_s: float) -> float:
    """The share by the duration or by a printed rate, whichever is the largest."""
    shares = [least_s / each.duration_s]
    tokens = each.input_tokens + each.output_tokens
    if each.total_tokens_per_s and tokens:
        shares.append(each.total_tokens_per_s * least_s / tokens)
    if each.output_tokens_per_s and each.output_tokens:
        shares.append(each.output_tokens_per_s * least_s / each.output_tokens)
    return max(shares)
