"""Context length of a candidate, against the requests it would get and against what the model was made for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from servelab.preflight import CHECKS, Check, Finding
from servelab.preflight.candidates import Known
from servelab.preflight.place import MODEL_ACTION, Place, Requests

TEMPLATE_TOKENS = 64
"""Room we want to see for a chat template, whose tokens no workload counts: it takes ten to some dozens."""


def look(place: Place) -> Iterator[Finding]:
    """One finding for each candidate, over all workloads."""
    study = place.project.study
    requests = {name: place.requests(name) for name in study.workloads}
    for known in place.candidates:
        shape = place.facts(known.planned.runs[0].spec.model).shape
        certain = set(study.workloads) if known.meets_all_workloads else {study.objective.on}
        asked = asked_tokens(place, known)
        yield judge(known.name, asked, shape.max_positions if shape else None, requests, certain)


def asked_tokens(place: Place, known: Known) -> int | None:
    """The context length that a candidate sets; None where it takes the model's."""
    asked = place.engine(known).setting("context_length", known.configuration.options, known.configuration.arguments)
    return asked if isinstance(asked, int) else None


def judge(
    of: str, asked: int | None, max_positions: int | None, requests: Mapping[str, Requests], certain: set[str]
) -> Finding:
    """The worst of what there is to say; `certain` are the workloads that the candidate meets whoever wins."""
    if asked and max_positions and asked > max_positions:
        saw = f"context length {asked:,} is above the {max_positions:,} positions that the model was made for"
        return Finding(of, "error", saw, "lower context_length, or give the engine another model configuration")
    context = asked or max_positions
    whose = "set" if asked else "the model's"
    too_long = [name for name, found in requests.items() if context and (found.longest_tokens or 0) > context]
    if too_long:
        worst = max(too_long, key=lambda name: (name in certain, requests[name].longest_tokens or 0))
        saw = f"context length {context:,} ({whose}), {_longest(worst, requests[worst])}"
        if worst in certain:
            return Finding(of, "error", saw, "raise context_length, or shorten the workload")
        return Finding(of, "warning", saw, "its requests would fail if this wins: raise context_length")
    tight = [
        name
        for name, found in requests.items()
        if context and found.is_chat and (found.longest_tokens or 0) + TEMPLATE_TOKENS > context
    ]
    if tight:
        saw = (
            f"context length {context:,} ({whose}), {_longest(tight[0], requests[tight[0]])}, chat template not counted"
        )
        return Finding(of, "warning", saw, f"leave {TEMPLATE_TOKENS} tokens or more for the template")
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
