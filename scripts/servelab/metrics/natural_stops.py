"""Comparing configurations whose answers end by themselves: they may write more or fewer tokens.

Two servers that write answers of different lengths do different work in a request. Normalised to one length, requests/s
x (output tokens of a request / those of the other side) changes as output tokens/s does, and so does any throughput of
which each request is a share; E2EL x (those of the other side / output tokens of a request) changes as the normalized
E2EL. So only figures of an output token are compared, and those that are known before the second token.
What is left: the prompt of a short answer is spread over fewer tokens, so the shorter side looks slower per token.
"""

from __future__ import annotations

LENGTH_DEPENDENT = {
    "requests_per_s": "output_tokens_per_s",
    "input_tokens_per_s": "output_tokens_per_s",
    "total_tokens_per_s": "output_tokens_per_s",
    "goodput_per_s": "slo_attainment",
    "capacity_per_s": "capacity_in_flight",
    "e2el_ms": "normalized_e2el_ms",
    "cost_per_million_tokens": "cost_per_million_output_tokens",
    "energy_per_token_j": "energy_per_output_token_j",
    "steady_requests_per_s": "steady_output_tokens_per_s",
    "steady_total_tokens_per_s": "steady_output_tokens_per_s",
    "steady_e2el_ms": "normalized_e2el_ms",
}
"""Metric that depends on the lengths of answers → the one to compare instead."""


def lengths_text(own: float, other: float, whose: str) -> str:
    """What a comparison says of the lengths: `answers end by themselves: 80 output tokens a request, …`."""
    change = 100 * (own / other - 1) if other else 0.0
    differ = f" ({change:+.0f} %)" if round(change) else ""
    return f"answers end by themselves: {own:.4g} output tokens a request, {whose} {other:.4g}{differ}"
