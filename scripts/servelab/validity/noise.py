"""Was the machine quiet, and are the rounds of one kind?"""

from __future__ import annotations

import statistics

import numpy as np

from servelab.validity import Evidence, Saw, check, not_applicable, ok, suspect

_ODD = 0.2
_AGREE = 4.0
_TAKEN = ("others_cpu_percent", "steal_cpu_percent")
_OTHERS_PERCENT = 10.0
_STEAL_PERCENT = 5.0
_THROTTLED = 0.05
_SLOWDOWN_REASONS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML `nvmlClocksEventReason…`: hardware slowdown, software and hardware thermal slowdown, power brake."""


@check(
    "disturbed_round",
    looks_at="The objective's value in each round after the first, from three rounds on.",
    rule="one round is more than 20 % from the median of the others, and more than four times as far as they are from "
    "one another.",
    why="Something happened in that round that the others did not see: the mean is pulled and the interval is wide. "
    "Rounds that scatter alike do not fail it; their interval tells.",
    fails_as=("suspect",),
    action="Look at the round's telemetry, and measure the run again on a quiet machine.",
)
def _disturbed_round(evidence: Evidence) -> Saw:
    return _odd_round(evidence, first=False)


@check(
    "still_warming_up",
    looks_at="The objective's value in the first round, from three rounds on.",
    rule="it is more than 20 % from the median of the others, and more than four times as far as they are from one "
    "another.",
    why="The first round paid for what happens once: compilation, page faults, the memory of the caches.",
    fails_as=("suspect",),
    action="Raise `warmup_requests` or `settle_requests`, and measure again.",
)
def _still_warming_up(evidence: Evidence) -> Saw:
    return _odd_round(evidence, first=True)


@check(
    "busy_machine",
    looks_at="CPU time of processes other than server and client, and time stolen by the hypervisor, during the load.",
    rule="on average over any round others used more than 10 % of the machine's CPUs, or more than 5 % were stolen.",
    why="Who shares the cores shares the caches and the memory too; 10 % is beyond what an idle system does for "
    "itself.",
    fails_as=("suspect",),
    action="Stop what else runs on the machine, and measure again.",
)
def _busy_machine(evidence: Evidence) -> Saw:
    used = [evidence.samples(name).groupby("round")["value"].mean().max() for name in _TAKEN]
    if np.isnan(used).all():
        return not_applicable("no telemetry of the CPUs")
    others, stolen = np.nan_to_num(used)
    text = f"others used {others:.1f} % of the CPUs, {stolen:.1f} % were stolen (worst round)"
    return suspect(text) if others > _OTHERS_PERCENT or stolen > _STEAL_PERCENT else ok(text)


@check(
    "clocks_throttled",
    looks_at="NVML's reasons for lowered clocks, during the load.",
    rule="more than 5 % of the samples have a thermal or hardware slowdown or a power brake. The power cap of the "
    "board is its normal limit and does not count.",
    why="A hot or starved GPU is slower than the same GPU another time, and gets slower as the study goes on.",
    fails_as=("suspect",),
    action="See to cooling and power, and measure again.",
)
def _clocks_throttled(evidence: Evidence) -> Saw:
    reasons = evidence.samples("throttle_reasons")["value"].dropna().astype("int64")
    if reasons.empty:
        return not_applicable("no telemetry of a GPU's clocks")
    share = float(((reasons & _SLOWDOWN_REASONS) != 0).mean())
    text = f"{100 * share:.0f} % of the samples have slowed clocks"
    return suspect(text) if share > _THROTTLED else ok(text)


def _odd_round(evidence: Evidence, first: bool) -> Saw:
    """Whether the round that is farthest from the median of the others is odd, and is the first (or a later) one."""
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
