"""Was the machine quiet, and do the rounds agree?"""

from __future__ import annotations

import statistics

from servelab.metrics.tables.io import present
from servelab.metrics.timeline import cpus_taken
from servelab.results.checks import Evidence, Saw, check, not_applicable, ok, suspect

_ODD = 0.2
_AGREE = 4.0
_THROTTLED = 0.05
_SLOWDOWN_REASONS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML `nvmlClocksEventReason…`: hardware slowdown, software and hardware thermal slowdown, power brake."""


@check(
    "disturbed_round",
    looks_at="The objective's value in each round after the first, from three rounds on.",
    rule="one round is more than 20 % from the median of the others, and more than four times as far as they are from "
    "one another.",
    why="Something disturbed that round and not the others: the mean is off and the interval is wide. Rounds that all "
    "scatter do not fail; their interval shows it.",
    fails_as=("suspect",),
    action="Look at the telemetry of the round, and measure the run again on a quiet machine.",
    means_disturbed=True,
)
def _disturbed_round(evidence: Evidence) -> Saw:
    return _odd_round(evidence, first=False)


@check(
    "still_warming_up",
    looks_at="The objective's value in the first round, from three rounds on.",
    rule="it is more than 20 % from the median of the others, and more than four times as far as they are from one "
    "another.",
    why="The first round paid one-time costs: compilation, page faults, allocation of caches.",
    fails_as=("suspect",),
    action="Raise `warmup_requests` or `settle_requests`, and measure again.",
)
def _still_warming_up(evidence: Evidence) -> Saw:
    return _odd_round(evidence, first=True)


@check(
    "busy_machine",
    looks_at="CPU time of processes other than server and client, and time stolen by the hypervisor, during the load.",
    rule="averaged over any round, other processes used more than `protocol.max_others_cpu_percent` of the machine's "
    "CPUs (10 % by default), or more than half as much was stolen.",
    why="Other processes also compete for caches and memory. An idle system itself uses less than 10 %.",
    fails_as=("suspect",),
    action="Stop other programs on the machine, and measure again.",
    means_disturbed=True,
)
def _busy_machine(evidence: Evidence) -> Saw:
    if (taken := cpus_taken(evidence.loaded)) is None:
        return not_applicable("no telemetry of the CPUs")
    return suspect(taken.text) if taken.disturbs(evidence.spec.protocol.max_others_cpu_percent) else ok(taken.text)


@check(
    "clocks_throttled",
    looks_at="NVML's reasons for reduced clocks, during the load.",
    rule="more than 5 % of the samples have a thermal or hardware slowdown or a power brake. The board's power cap is "
    "its normal limit and is not counted.",
    why="A GPU that is hot or short of power is slower than at another time, and gets slower during the study.",
    fails_as=("suspect",),
    action="Check cooling and power supply, and measure again.",
)
def _clocks_throttled(evidence: Evidence) -> Saw:
    reasons = present(evidence.samples("throttle_reasons")["value"]).astype("int64")
    if not reasons.size:
        return not_applicable("no telemetry of a GPU's clocks")
    share = float(((reasons & _SLOWDOWN_REASONS) != 0).mean())
    text = f"{100 * share:.0f} % of the samples have reduced clocks"
    return suspect(text) if share > _THROTTLED else ok(text)


def _odd_round(evidence: Evidence, first: bool) -> Saw:
    """Whether the round farthest from the median of the others is an outlier, and is the first (or a later) one."""
    metric = evidence.spec.objective
    values = evidence.rounds.get(metric, {})
    if len(values) < 3:
        return not_applicable("fewer than three rounds")
    start, worst = min(values), 0.0
    for number, value in values.items():
        others = [other for key, other in values.items() if key != number]
        middle = statistics.median(others)
        if (number == start) is first and middle:
            away, spread = abs(value / middle - 1), (max(others) - min(others)) / abs(middle)
            worst = max(worst, away)
            if away > max(_ODD, _AGREE * spread):
                odd = f"round {number}: {metric} {value:.4g}, the others' median is {middle:.4g}"
                return suspect(f"{odd}; they are within {100 * spread:.0f} % of one another")
    which = "the first round is" if first else "every later round is within"
    return ok(f"{which} {100 * worst:.1f} % {'from' if first else 'of'} the others' median")
