"""Arrival times: when to send each request of a round."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from servelab.measure.load.plan import LoadPlan


def arrival_times(plan: LoadPlan, count: int, recorded_s: Sequence[float] | None = None) -> list[float]:
    """Seconds from the start of the round, ascending, the first 0.

    A finite rate gives a renewal process of that mean rate: `poisson` (exponential gaps), `constant`, or `gamma` gaps
    of shape `burstiness`, as in `vllm bench serve`. With `ramp_up_s` T the rate is r·t/T until T: gaps are drawn in
    expected requests, Λ(t) = r·t²/2T until T, then r·(t − T/2), and the inverse of Λ turns them into seconds. Rate
    `inf` gives 0; with `ramp_up_s` it spreads the first requests (as many as may be in flight) evenly over it and sends
    the others at its end. `replay` gives `recorded_s`. Every round gets the same times, so that rounds differ only by
    the server. `ValueError` if `replay` has no recorded times.
    """
    if plan.arrivals == "replay":
        if recorded_s is None or len(recorded_s) != count:
            raise ValueError("`arrivals: replay` needs the time of each request")
        return [time - recorded_s[0] for time in recorded_s]
    if plan.request_rate == "inf":
        first = min(plan.max_concurrency or count, count)
        return [plan.ramp_up_s * min(index / first, 1.0) for index in range(count)]
    gap = _gaps(plan)
    expected, times = 0.0, []
    for _ in range(count):
        times.append(_time_of(expected, plan.request_rate, plan.ramp_up_s))
        expected += gap()
    return times


def _gaps(plan: LoadPlan) -> Callable[[], float]:
    """A function that draws gaps of mean 1."""
    draw = random.Random(plan.seed)  # noqa: S311 (arrival times, no secret)
    if plan.arrivals == "constant":
        return lambda: 1.0
    if plan.arrivals == "gamma":
        return lambda: draw.gammavariate(plan.burstiness, 1 / plan.burstiness)
    return lambda: draw.expovariate(1.0)


def _time_of(expected: float, rate: float, ramp_up_s: float) -> float:
    """Seconds after which `expected` requests are expected: the inverse of Λ in `arrival_times`."""
    if expected < rate * ramp_up_s / 2:
        return math.sqrt(2 * ramp_up_s * expected / rate)
    return expected / rate + ramp_up_s / 2
