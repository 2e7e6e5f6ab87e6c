"""Estimates the memory of each candidate's weights and KV cache against an accelerator's; it never reports an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from servelab.assets.model_work import ModelFacts, ModelShape
from servelab.engines.accelerator_boards import board_of
from servelab.engines.options import Parallel
from servelab.engines.roofline import (
    GIB,
    MEMORY_SHARE,
    RUNTIME_GIB,
    gib,
    kv_bytes_each,
    kv_number_bytes,
    weights_bytes_each,
)
from servelab.search.preflight import CHECKS, Finding, PreflightCheck
from servelab.search.preflight.place import MODEL_ACTION, Known, Memory, Place, Requests

TEMPLATE_TOKENS = 64
"""Tokens to leave for a chat template, which workloads do not count; templates take ten to a few dozen."""


def _contexts(place: Place) -> Iterator[Finding]:
    """One finding per candidate, over all workloads."""
    study = place.project.study
    requests = {name: place.requests(name) for name in study.workloads}
    for known in place.candidates:
        shape = place.facts(known.planned.runs[0].spec.model).shape
        certain = set(study.workloads) if known.meets_all_workloads else {study.objective.on}
        asked = asked_tokens(place, known)
        yield judge_context(known.name, asked, shape.max_positions if shape else None, requests, certain)


def asked_tokens(place: Place, known: Known) -> int | None:
    """The context length that a candidate sets; None if it uses the model's."""
    asked = place.engine(known).setting("context_length", known.configuration.options, known.configuration.arguments)
    return asked if isinstance(asked, int) else None


def judge_context(
    of: str, asked: int | None, max_positions: int | None, requests: Mapping[str, Requests], certain: set[str]
) -> Finding:
    """The most serious finding; `certain` are the workloads on which the candidate is measured in any case."""
    if asked and max_positions and asked > max_positions:
        saw = f"context length {asked:,} is above the model's {max_positions:,} positions"
        return Finding(of, "error", saw, "lower context_length, or give the engine another model configuration")
    context = asked or max_positions
    whose = "set" if asked else "the model's"
    too_long = [name for name, found in requests.items() if context and (found.longest_tokens or 0) > context]
    if too_long:
        worst = max(too_long, key=lambda name: (name in certain, requests[name].longest_tokens or 0))
        saw = f"context length {context:,} ({whose}), {_longest(worst, requests[worst])}"
        if worst in certain:
            return Finding(of, "error", saw, "raise context_length, or shorten the workload")
        return Finding(of, "warning", saw, "these requests would fail if this candidate wins: raise context_length")
    tight = [
        name
        for name, found in requests.items()
        if context and found.is_chat and (found.longest_tokens or 0) + TEMPLATE_TOKENS > context
    ]
    if tight:
        saw = (
            f"context length {context:,} ({whose}), {_longest(tight[0], requests[tight[0]])}, chat template not counted"
        )
        return Finding(of, "warning", saw, f"leave at least {TEMPLATE_TOKENS} tokens for the template")
    unlimited = [name for name, found in requests.items() if found.longest_tokens is None]
    if unlimited:
        action = "prepare the workload first, or set max_input_tokens and max_output_tokens"
        return Finding(of, "unknown", f"nothing limits the requests of {', '.join(unlimited)}", action)
    longest = max(requests, key=lambda name: requests[name].longest_tokens or 0)
    if context is None:
        saw = f"the model's own context length is not known here; {_longest(longest, requests[longest])}"
        return Finding(of, "unknown", saw, MODEL_ACTION)
    return Finding(of, "ok", f"context length {context:,} ({whose}), {_longest(longest, requests[longest])}")


def _longest(name: str, found: Requests) -> str:
    bound = "longest request" if found.is_exact else "requests of at most"
    return f"{bound} {found.longest_tokens:,} tokens ({name})"


CHECKS.register(
    "context", PreflightCheck("context", "context length against the longest request and the model's own", _contexts)
)


@dataclass(frozen=True)
class Demand:
    """What a candidate needs in memory at once."""

    parallel: Parallel
    sequences: int
    """Largest number of sequences computed at once."""
    is_limited: bool
    """Whether the candidate sets that number; otherwise the load does."""
    tokens: int
    """Tokens of the longest of these sequences."""
    context: int
    """Tokens of the longest sequence that the engine accepts."""
    number_bytes: float
    """Bytes per number in the KV cache."""
    share: float
    """Share of the memory for weights and KV cache."""
    reserves_context: bool
    """Whether the engine reserves memory for all sequences at full context when it starts."""
    runtime_gib: float = 0.0
    """Activations, graphs and runtime, which are inside the share on an accelerator."""


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate."""
    for known in place.candidates:
        if place.engine(known).already_runs:
            continue
        facts = place.facts(known.planned.runs[0].spec.model)
        if facts.weights_bytes is None or facts.shape is None:
            yield Finding(known.name, "unknown", "size and shape of the model are not known here", MODEL_ACTION)
            continue
        if place.memory is None:
            name = place.project.study.hardware.accelerator
            action = "run this on a machine that has it"
            yield Finding(known.name, "unknown", f"how much memory `{name}` has is not known here", action)
            continue
        demand = _demand(place, known, facts.shape)
        if demand is None:
            dtype = known.configuration.options.get("kv_cache_dtype")
            yield Finding(known.name, "unknown", f"size of a number in KV-cache format `{dtype}` is not known", None)
            continue
        yield judge(known.name, facts, demand, place.memory)


def judge(of: str, facts: ModelFacts, demand: Demand, memory: Memory) -> Finding:
    """The weights must fit, then one sequence of full context, then all sequences computed at once."""
    assert facts.weights_bytes is not None and facts.shape is not None
    each = "on each accelerator: " if demand.parallel.accelerators > 1 else ""
    less = f" − {demand.runtime_gib:g} GiB" if demand.runtime_gib else ""
    have = f"{gib(memory.size_bytes)} × {demand.share:g}{less} ({memory.source})"
    usable = memory.size_bytes * demand.share - demand.runtime_gib * GIB
    weights = weights_bytes_each(facts.weights_bytes, demand.parallel)
    if weights > usable:
        action = "use more accelerators for each copy, a quantised variant, or a larger memory_share"
        return Finding(of, "warning", f"{each}weights {gib(weights)} on {have}", action)

    def needed(sequences: int, tokens: int) -> tuple[float, str]:
        here = -(-sequences // demand.parallel.data)
        kv = here * kv_bytes_each(facts.shape, tokens, demand.number_bytes, demand.parallel)  # type: ignore[arg-type]
        counted = "1 sequence" if here == 1 else f"{here:,} sequences"
        return weights + kv, f"{each}weights {gib(weights)} + KV {gib(kv)} for {counted} of {tokens:,} tokens on {have}"

    full, saw = needed(demand.sequences if demand.reserves_context else 1, demand.context)
    if full > usable:
        return Finding(of, "warning", saw, "the engine may not start: lower context_length or max_num_seqs")
    if demand.reserves_context:
        return Finding(of, "ok", saw)
    together, saw = needed(demand.sequences, demand.tokens)
    if together <= usable:
        return Finding(of, "ok", saw)
    fit = int((usable - weights) * demand.sequences / (together - weights))
    saw = f"{saw}: about {fit:,} of {demand.sequences:,} fit at once, the others wait"
    if demand.is_limited:
        return Finding(of, "warning", saw, "a larger max_num_seqs gains nothing")
    return Finding(of, "ok", saw)


def _demand(place: Place, known: Known, shape: ModelShape) -> Demand | None:
    """What a candidate needs under the workload that decides; None for a KV-cache format of unknown size."""
    study, engine, configuration = place.project.study, place.engine(known), known.configuration

    def setting(option: str) -> object:
        return engine.setting(option, configuration.options, configuration.arguments)

    version, hardware = study.engines[configuration.engine].version, study.hardware
    board = board_of(hardware.accelerator, is_cpu=hardware.device == "cpu")
    share = engine.effective(version, board, configuration.options, configuration.arguments).get("memory_share")
    dtype, limit = setting("kv_cache_dtype"), setting("max_num_seqs")
    number_bytes = kv_number_bytes(dtype if isinstance(dtype, str) else None)
    if number_bytes is None:
        return None
    requests = place.requests(study.objective.on)
    is_limited = isinstance(limit, int)
    limit_in_flight = study.protocol_of(study.objective.on).max_concurrency
    in_flight = min(requests.count, limit_in_flight or requests.count)
    sequences = min(in_flight, limit) if isinstance(limit, int) else in_flight
    context = asked_tokens(place, known) or shape.max_positions or requests.longest_tokens or 0
    if engine.reserves_context:  # it reserves the cache for max_num_seqs sequences, or for one if that is not set
        sequences = limit if isinstance(limit, int) else 1
    return Demand(
        parallel=engine.parallel(configuration.options, configuration.arguments, configuration.accelerators),
        sequences=sequences,
        is_limited=is_limited,
        tokens=min(requests.longest_tokens or context, context),
        context=context,
        number_bytes=number_bytes,
        share=share if isinstance(share, float) else MEMORY_SHARE,
        reserves_context=engine.reserves_context,
        runtime_gib=0.0 if board.is_cpu or engine.reserves_context else RUNTIME_GIB,
    )


CHECKS.register(
    "memory", PreflightCheck("memory", "weights and KV cache, estimated, against an accelerator's memory", look)
)
