"""Was the load the one that the study asks for, was the machine quiet, and do the rounds agree?"""

from __future__ import annotations

import statistics

import numpy as np

from servelab.metrics.capacity import QUEUE_GROWS, share_served
from servelab.metrics.definitions import METRICS
from servelab.metrics.tables.io import by_round, maximum, present
from servelab.metrics.timeline import delay_of, in_flight
from servelab.results.checks import Evidence, Saw, check, invalid, not_applicable, ok, suspect

_KEPT_UP = 0.95
_BUSY_PERCENT = 50.0
_SENT_FOR = 0.9


@check("in_flight_above_limit")
def _in_flight_above_limit(evidence: Evidence) -> Saw:
    limit = evidence.spec.protocol.max_concurrency
    if limit is None:
        return not_applicable("no limit was asked for")
    most = 0
    for requests in by_round(evidence.records).values():
        # a millisecond earlier: clients take the time of an end after they start the next request
        ends = np.maximum(requests["end_s"] - 0.001, requests["sent_s"])
        most = max(most, int(in_flight(requests["sent_s"], ends).counts.max(initial=0)))
    text = f"{most:,} requests in flight at most, {limit:,} allowed"
    return ok(text) if most <= limit else invalid(text)


@check("rate_below_capacity")
def _rate_below_capacity(evidence: Evidence) -> Saw:
    objective = METRICS.get(evidence.spec.objective)
    if not objective.is_rate:
        return not_applicable("the objective is not a rate")
    if evidence.loads_sent:
        return not_applicable("the load was searched")
    share = _share_served(evidence)
    if share is None:
        return not_applicable("requests were not sent over time")
    if objective.needs_slos:  # limited by the server where it serves too few well enough
        good, served = evidence.mean(objective.tag), evidence.mean("requests_per_s")
        share *= good / served if good is not None and served else 1.0
    what = "good requests" if objective.needs_slos else "requests"
    text = f"{what} ended at {100 * share:.0f} % of the rate at which they arrived"
    return suspect(text) if share >= _KEPT_UP else ok(text)


@check("queue_grows")
def _queue_grows(evidence: Evidence) -> Saw:
    if any(stats.saturated for stats in evidence.client):
        return invalid("a round was ended because too many requests were in flight")
    if METRICS.get(evidence.spec.objective).higher_is_better:
        return not_applicable("the objective is not a latency")
    share = _share_served(evidence)
    if share is None:
        return not_applicable("requests were not sent over time")
    text = f"requests ended at {100 * share:.0f} % of the rate at which they arrived"
    return suspect(text) if share < QUEUE_GROWS else ok(text)


@check("concurrency_below_capacity")
def _concurrency_below_capacity(evidence: Evidence) -> Saw:
    if not METRICS.get(evidence.spec.objective).is_rate or _share_served(evidence) is not None:
        return not_applicable("the objective is not a rate, or the loop is open")
    if evidence.loads_sent:
        return not_applicable("the load was searched")
    waiting = evidence.samples("requests_waiting")["value"]
    busy = evidence.samples("gpu_utilization_percent")["value"]
    if not busy.size:
        busy = evidence.samples("machine_cpu_percent")["value"]
    if not waiting.size or not busy.size:
        return not_applicable("no telemetry of the server's queue and its device")
    text = f"{waiting.max():,.0f} requests waited at most, the device was {busy.mean():.0f} % busy"
    return suspect(text) if waiting.max() == 0 and busy.mean() < _BUSY_PERCENT else ok(text)


@check("shorter_than_asked")
def _shorter_than_asked(evidence: Evidence) -> Saw:
    asked = evidence.spec.protocol.duration_s
    if asked is None:
        return not_applicable("no duration was asked for")
    if evidence.client and all(stats.requests_not_sent > 0 for stats in evidence.client):
        return ok("the duration ended before the requests ran out")
    sent = float(np.nanmin([maximum(requests["sent_s"]) for requests in by_round(evidence.records).values()]))
    text = f"the last request of a round was sent after {sent:.1f} of {asked:g} s"
    return ok(text) if sent >= _SENT_FOR * asked else suspect(text)


def _share_served(evidence: Evidence) -> float | None:
    """`share_served` of the run's rounds."""
    return share_served(by_round(evidence.counted).values())


_ODD = 0.2
_AGREE = 4.0
_THROTTLED = 0.05
_SLOWDOWN_REASONS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML `nvmlClocksEventReason…`: hardware slowdown, software and hardware thermal slowdown, power brake."""


@check("disturbed_round")
def _disturbed_round(evidence: Evidence) -> Saw:
    return _odd_round(evidence, first=False)


@check("still_warming_up")
def _still_warming_up(evidence: Evidence) -> Saw:
    return _odd_round(evidence, first=True)


@check("busy_machine")
def _busy_machine(evidence: Evidence) -> Saw:
    if (delay := delay_of(evidence.loaded)) is None:
        return not_applicable("no telemetry of the CPUs")
    return suspect(delay.text) if delay.disturbs(evidence.spec.protocol.max_others_cpu_percent) else ok(delay.text)


@check("clocks_throttled")
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
