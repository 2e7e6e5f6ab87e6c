"""Requests in flight, arriving tokens, and how long a run waited for CPUs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from servelab.metrics.tables.io import Floats, RecordArray, by_round, maximum, mean


class InFlight(NamedTuple):
    """Requests in flight as a step function: `counts[i]` of them from `times_s[i]` until `times_s[i + 1]`."""

    times_s: Floats
    counts: Floats


class TokenEvents(NamedTuple):
    """Output tokens by the time they arrived."""

    times_s: Floats
    tokens: Floats


def in_flight(sent_s: Floats, end_s: Floats) -> InFlight:
    """Requests that were sent and have not ended; the last count is 0.

    A value each for every request of a round, `sent_s` NaN where it never was sent. A request is in flight from its
    send up to its end, so one that is sent in the moment another ends does not add to it.
    """
    sent = ~np.isnan(sent_s)
    times = np.concatenate([sent_s[sent], end_s[sent]])
    changes = np.repeat([1.0, -1.0], sent.sum())
    moments, at = np.unique(times, return_inverse=True)
    return InFlight(moments, np.cumsum(np.bincount(at, weights=changes, minlength=len(moments))))


def output_token_events(successes: RecordArray) -> TokenEvents:
    """Output tokens of successful requests by arrival; their sum is that of `output_tokens`.

    An event may contain several tokens and does not report how many: each counts for the request's mean, output tokens
    / events. If a client records no gaps, its events (or tokens, if it does not count events) are spread evenly between
    the first and the last. Tokens without any event count at the request's end.
    """
    times, tokens = [np.empty(0)], [np.empty(0)]
    for first, last, end, output, chunks, gaps in zip(
        *(successes[name] for name in ("first_token_s", "last_token_s", "end_s", "output_tokens", "chunks")),
        successes["chunk_gaps_ms"],
        strict=True,
    ):
        if math.isnan(first):
            arrived = np.array([end])
        elif gaps is not None and len(gaps) == chunks - 1:
            since_first = np.concatenate([[0.0], np.cumsum(gaps, dtype=np.float64)]) / 1000
            arrived = np.minimum(first + since_first, last)
        else:
            arrived = np.linspace(first, last, max(1, int(output if math.isnan(chunks) else chunks)))
        times.append(arrived)
        tokens.append(np.full(len(arrived), output / len(arrived)))
    return TokenEvents(np.concatenate(times), np.concatenate(tokens))


_EFFECT = 2.0
"""Percent of the tokens per second that a delay of 1 % costs at most (docs/evidence.md)."""


class Delay(NamedTuple):
    """How long server and client waited for CPUs that others had, in the round with the longest delay."""

    percent: float
    """Of the time; the share of the CPUs that others used if the waiting was not seen, which is no less."""
    others_percent: float
    """Share of the CPUs that others used, or the hypervisor took."""
    siblings_percent: float
    """Share of the CPUs that other jobs of the workflow used; 0 if unknown."""
    is_seen: bool
    """Whether the kernel says how long processes waited; earlier versions did not look."""
    sees_server: bool

    def disturbs(self, most_percent: float) -> bool:
        """Whether it may have lowered the figures by more than the protocol's `max_others_cpu_percent`."""
        return (_EFFECT * self.percent if self.is_seen else self.percent) > most_percent and most_percent < 100

    @property
    def text(self) -> str:
        """It, for tables and logs."""
        share = f"{self.percent:.1f} %"
        if not self.is_seen:
            return f"others used {share} of the CPUs; how long server and client waited was not visible (worst round)"
        who = "server and client" if self.sees_server else "the client (the server is not visible from here)"
        siblings = f", {self.siblings_percent:.0f} % of the CPUs used by other jobs of this workflow"
        return (
            f"{who} waited {share} of the time for CPUs that others had"
            f"{siblings if self.siblings_percent >= 1 else ''} (worst round)"
        )


def apart(percent: float, other_percent: float) -> float:
    """By how much another run may be slower than a run, as a logarithm, from their delays in percent of the time."""
    return _EFFECT * (math.log1p(-min(percent, 99) / 100) - math.log1p(-min(other_percent, 99) / 100))


def under_load(requests: RecordArray, telemetry: RecordArray) -> RecordArray:
    """The telemetry while the load ran: from the zero of each round to its last end.

    `requests` has rows of `schemas.RUN_REQUESTS`, `telemetry` rows of `schemas.TELEMETRY`.
    """
    ends = np.full(len(telemetry), np.nan)
    for number, records in by_round(requests).items():
        ends[telemetry["round"] == number] = maximum(records["end_s"])
    loaded: RecordArray = telemetry[(telemetry["time_s"] >= 0) & (telemetry["time_s"] <= ends)]
    return loaded


def delay_of(loaded: RecordArray) -> Delay | None:
    """How others delayed a run, from telemetry under load; None without telemetry of the CPUs."""
    names = ("delayed_percent", "others_cpu_percent", "steal_cpu_percent", "siblings_cpu_percent")
    delayed, others, stolen, siblings = (_worst_round(loaded, metric) for metric in names)
    taken = float(np.nansum([others, stolen]))
    if np.isnan([delayed, others, stolen]).all():
        return None
    is_seen = not np.isnan(delayed)
    sees_server = not np.isnan(_worst_round(loaded, "server_waited_percent"))
    # the telemetry of former versions had the sum over all threads, which may be more than the time
    return Delay(min(delayed, 100.0) if is_seen else taken, taken, float(np.nansum([siblings])), is_seen, sees_server)


def _worst_round(loaded: RecordArray, metric: str) -> float:
    """The highest of the rounds' means; NaN without telemetry of it."""
    rounds = by_round(loaded[loaded["metric"] == metric]).values()
    return maximum(np.array([mean(samples["value"]) for samples in rounds]))


LENGTH_DEPENDENT = {
    "requests_per_s": "output_tokens_per_s",
    "input_tokens_per_s": "output_tokens_per_s",
    "total_tokens_per_s": "output_tokens_per_s",
    "goodput_per_s": "slo_attainment",
    "capacity_per_s": "capacity_in_flight",
    "e2el_ms": "normalized_e2el_ms",
    "cost_per_million_tokens": "cost_per_million_output_tokens",
    "energy_per_token_j": "energy_per_output_token_j",
}
"""Metric that depends on the lengths of answers → the one to compare instead."""


def lengths_text(own: float, other: float, whose: str) -> str:
    """The sentence of a comparison about the lengths: `answers end by themselves: 80 output tokens a request, …`."""
    change = 100 * (own / other - 1) if other else 0.0
    differ = f" ({change:+.0f} %)" if round(change) else ""
    return f"answers end by themselves: {own:.4g} output tokens a request, {whose} {other:.4g}{differ}"
