"""Checks each candidate's context length against its requests and against the model's own limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from servelab.search.preflight import CHECKS, Check, Finding
from servelab.search.preflight.candidates import Known
from servelab.search.preflight.place import MODEL_ACTION, Place, Requests

TEMPLATE_TOKENS = 64
"""Tokens to leave for a chat template, which workloads do not count; templates take ten to a few dozen."""


def look(place: Place) -> Iterator[Finding]:
    """One finding per candidate, over all workloads."""
    study = place.project.study
    requests = {name: place.requests(name) for name in study.workloads}
    for known in place.candidates:
        shape = place.facts(known.planned.runs[0].spec.model).shape
        certain = set(study.workloads) if known.meets_all_workloads else {study.objective.on}
        asked = asked_tokens(place, known)
        yield judge(known.name, asked, shape.max_positions if shape else None, requests, certain)


def asked_tokens(place: Place, known: Known) -> int | None:
    """The context length that a candidate sets; None if it uses the model's."""
    asked = place.engine(known).setting("context_length", known.configuration.options, known.configuration.arguments)
    return asked if isinstance(asked, int) else None


def judge(
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


CHECKS.register("context", Check("context", "context length against the longest request and the model's own", look))
