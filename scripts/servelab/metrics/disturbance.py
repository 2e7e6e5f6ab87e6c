"""Disturbance: whether other processes took the CPUs while a run was measured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from servelab.metrics.tables.record_array import RecordArray, by_round, maximum, mean

STEAL_SHARE = 0.5
"""Other machines on the same host disturb a round from half of what other processes may take: nothing is idle there."""


class Taken(NamedTuple):
    """Shares of the machine's CPUs, in percent, of the round with the highest."""

    others_percent: float
    """Of processes other than server and client; 0 if unknown."""
    steal_percent: float
    """Of other machines; 0 if unknown."""

    def disturbs(self, most_percent: float) -> bool:
        """Whether it is more than the protocol's `max_others_cpu_percent`."""
        if most_percent >= 100:
            return False
        return self.others_percent > most_percent or self.steal_percent > STEAL_SHARE * most_percent

    @property
    def text(self) -> str:
        """It, for tables and logs."""
        others, stolen = f"{self.others_percent:.1f} %", f"{self.steal_percent:.1f} %"
        return f"others used {others} of the CPUs, {stolen} were stolen (worst round)"


def under_load(requests: RecordArray, telemetry: RecordArray) -> RecordArray:
    """The telemetry while the load ran: from the zero of each round to its last end.

    `requests` has rows of `schemas.RUN_REQUESTS`, `telemetry` rows of `schemas.TELEMETRY`.
    """
    ends = np.full(len(telemetry), np.nan)
    for number, records in by_round(requests).items():
        ends[telemetry["round"] == number] = maximum(records["end_s"])
    loaded: RecordArray = telemetry[(telemetry["time_s"] >= 0) & (telemetry["time_s"] <= ends)]
    return loaded


def cpus_taken(loaded: RecordArray) -> Taken | None:
    """What others took, from telemetry under load; None without telemetry of the CPUs."""
    taken = [_worst_round(loaded, metric) for metric in ("others_cpu_percent", "steal_cpu_percent")]
    return None if np.isnan(taken).all() else Taken(*map(float, np.nan_to_num(taken)))


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
