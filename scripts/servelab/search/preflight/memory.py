"""Estimates the memory of each candidate's weights and KV cache against an accelerator's; it never reports an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from servelab.assets.model_work import ModelFacts, stored_bits
from servelab.core.run_spec import ArgumentValue
from servelab.engines.accelerator_boards import GIB
from servelab.engines.memory import Division, division_of, gib, kv_room_bytes, sequence_bytes, weights_bytes_each
from servelab.engines.options import argument
from servelab.engines.start_rules import own_positions
from servelab.results.past_runs import PastRun, past_runs
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
        own, given = shape.max_positions if shape else None, known.configuration
        most = own_positions(given.arguments, given.environment_variables, own)
        yield judge_context(known.name, asked, most, requests, certain)


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
        saw = f"context length {context:,} ({whose}), {_longest(tight[0], requests[tight[0]])}, without chat template"
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
    """The memory that a candidate needs at once."""

    division: Division
    weights_bytes: float
    """On all accelerators of a copy together."""
    sequences: int
    """Largest number of sequences computed at once."""
    is_limited: bool
    """Whether the candidate sets that number; otherwise the load does."""
    tokens: int
    """Tokens of the longest of these sequences."""
    context: int
    """Tokens of the longest sequence that the engine accepts."""
    reserves_context: bool
    """Whether the engine reserves memory for all sequences at full context when it starts."""


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate."""
    past = list(past_runs(place.results / "runs"))
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
        demand = _demand(place, known, facts)
        if demand is None:
            dtype = known.configuration.options.get("kv_cache_dtype")
            yield Finding(known.name, "unknown", f"size of a number in KV-cache format `{dtype}` is not known", None)
            continue
        shared = known.configuration.replicas if place.board.is_cpu else 1
        memory = replace(place.memory, size_bytes=place.memory.size_bytes // shared)
        yield judge(known.name, facts, demand, memory, _more_room(place, known, facts, past))


def _more_room(place: Place, known: Known, facts: ModelFacts, past: Sequence[PastRun]) -> float | None:
    """Bytes by which past starts of this model, release and hardware, failed ones too, had more for the KV cache than
    their estimate, in the mean; None if there are none.
    """
    engine, planned, found = place.engine(known), known.planned.runs[0].spec.model_dump(mode="json"), []
    if engine.kv_room_line is None or facts.shape is None or place.memory is None:
        return None
    for run in past:
        log = place.results / "runs" / run.run_id / "server.log"
        if any(run.spec.get(part) != planned[part] for part in ("engine", "model", "hardware")) or not log.exists():
            continue
        options, arguments, count = run.spec["options"], run.spec["arguments"], run.spec["hardware"]["count"]
        settings = engine.effective(run.spec["engine"]["version"], place.board, options, arguments)
        parallel = engine.parallel(options, arguments, count)
        division = division_of(engine, run.spec["engine"]["version"], place.board, settings, parallel)
        lines = engine.kv_room_line.finditer(log.read_text(encoding="utf-8", errors="replace"))
        sizes = [sum(float(size) for size in line.groups() if size) for line in lines]
        # a line for each worker; one of a draft's small cache is left out
        least = min((size for size in sizes if size >= max(sizes) - abs(max(sizes)) / 2), default=None)
        if division and least is not None:
            weights = _served_bytes(facts, arguments, parallel.accelerators, place.draft(arguments))
            found.append(least * GIB - kv_room_bytes(facts.shape, weights, place.memory.size_bytes, division))
    return fmean(found) if found else None


def judge(of: str, facts: ModelFacts, demand: Demand, memory: Memory, more_room: float | None = None) -> Finding:
    """The weights must fit, then one sequence of full context, then all sequences computed at once.

    Estimates, within a tenth or so, or as past starts measured: no more than a warning.
    """
    shape, division = facts.shape, demand.division
    assert shape is not None
    each = "on each accelerator: " if division.parallel.accelerators > 1 else ""
    have = f"{gib(memory.size_bytes)} × {division.share:g} ({memory.source})"
    weights = weights_bytes_each(demand.weights_bytes, division.parallel, shape)
    room = kv_room_bytes(shape, demand.weights_bytes, memory.size_bytes, division) + (more_room or 0.0)
    used = memory.size_bytes * division.share - weights - room
    about = "about" if more_room is None else "as past starts measured"
    drafted = " with the draft's" if division.draft else ""
    held = f"{each}weights {gib(weights)}{drafted}" + (f", {about} {gib(used)} to work" if used > 0 else "")
    if room < 0:
        action = "use more accelerators for each copy, a quantised variant, or a larger memory_share"
        return Finding(of, "warning", f"{held} on {have}", action)

    def needed(sequences: int, tokens: int) -> tuple[float, str]:
        here = -(-sequences // division.parallel.data)
        kv = sequence_bytes(shape, tokens, division)
        counted = "1 sequence" if here == 1 else f"{here:,} sequences"
        return here * kv, f"{held}, KV {gib(here * kv)} for {counted} of {tokens:,} tokens on {have}"

    full, saw = needed(demand.sequences if demand.reserves_context else 1, demand.context)
    if full > room:
        return Finding(of, "warning", saw, "the engine may not start: lower context_length or max_num_seqs")
    if (most := division.state_limit(shape, room)) is not None:
        saw = f"{held} on {have}: states of about {most:,} sequences, fewer than max_num_seqs {division.sequences:,}"
        return Finding(of, "warning", saw, "the engine may not start: lower max_num_seqs")
    if demand.reserves_context:
        return Finding(of, "ok", saw)
    together, saw = needed(demand.sequences, demand.tokens)
    if together <= room:
        return Finding(of, "ok", saw)
    fit = int(room * demand.sequences / together)
    saw = f"{saw}: about {fit:,} of {demand.sequences:,} fit at once, the others wait"
    if demand.is_limited:
        return Finding(of, "warning", saw, "a larger max_num_seqs gains nothing")
    return Finding(of, "ok", saw)


def _demand(place: Place, known: Known, facts: ModelFacts) -> Demand | None:
    """The memory that a candidate needs under the workload that decides; None for a KV-cache format of unknown size."""
    study, engine, configuration = place.project.study, place.engine(known), known.configuration
    parallel = engine.parallel(configuration.options, configuration.arguments, configuration.per_server)
    version = study.engines[configuration.engine].version
    division = division_of(engine, version, place.board, place.effective(known), parallel)
    if division is None or facts.shape is None or facts.weights_bytes is None:
        return None
    draft = place.draft(configuration.arguments)
    division = replace(division, draft=draft.shape)
    if place.board.is_cpu or engine.reserves_context:
        division = replace(division, batched_tokens=1, has_graphs=False)
    limit = engine.setting("max_num_seqs", configuration.options, configuration.arguments)
    requests = place.requests(study.objective.on)
    limit_in_flight = study.protocol_of(study.objective.on, configuration.accelerators).max_concurrency
    in_flight = -(-min(requests.count, limit_in_flight or requests.count) // configuration.replicas)
    sequences = min(in_flight, limit) if isinstance(limit, int) else in_flight
    context = asked_tokens(place, known) or facts.shape.max_positions or requests.longest_tokens or 0
    if place.effective(known).get("context_length") == "auto":
        context = min(context, requests.longest_tokens or context)
    if engine.reserves_context:  # it reserves the cache for max_num_seqs sequences, or for one if that is not set
        sequences = limit if isinstance(limit, int) else 1
    return Demand(
        division=division,
        weights_bytes=_served_bytes(facts, configuration.arguments, parallel.accelerators, draft),
        sequences=sequences,
        is_limited=isinstance(limit, int),
        tokens=min(requests.longest_tokens or context, context),
        context=context,
        reserves_context=engine.reserves_context,
    )


def _served_bytes(
    facts: ModelFacts, arguments: Mapping[str, ArgumentValue], accelerators: int, draft: ModelFacts
) -> float:
    """Bytes of the weights as served: narrowed when they are loaded, without what is kept in the host's memory, and
    with the draft's.
    """
    assert facts.weights_bytes is not None
    found = float(facts.weights_bytes)
    if argument(arguments, "quantization") in ("fp8", "w8a8_fp8") and facts.config and stored_bits(facts.config) == 16:
        found /= 2
    offloaded = argument(arguments, "cpu-offload-gb")
    found = max(0.0, found - (float(offloaded) * GIB * accelerators if offloaded else 0.0))
    return found + (draft.weights_bytes or 0)


CHECKS.register(
    "memory", PreflightCheck("memory", "weights and KV cache, estimated, against an accelerator's memory", look)
)
