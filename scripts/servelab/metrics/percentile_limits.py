"""Whether a limit on a percentile holds with 95 % confidence, from how many observations are beyond the limit.

A percentile of a few requests says little about the server: of 48 requests of a server whose p99 is 25 % above a limit,
often none is above it. So a limit on p99 holds only if at most 1 % of the requests are beyond the limit with 95 %
confidence. The bound is the exact one of Clopper and Pearson 1934, "The use of confidence or fiducial limits
illustrated in the case of the binomial", Biometrika 26, 404. MLPerf's LoadGen ends a run by the same idea ("early
stopping"), with 99 % confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from servelab.core.run_spec import Statistic
from servelab.metrics.definitions import METRICS, RunData

PERCENTILES: dict[Statistic, float] = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Statistic that is a percentile → the share of the observations that is at most as large."""
CONFIDENCE = 0.95


class Beyond(NamedTuple):
    """How many of a run's observations are beyond a limit: above an upper limit, below a lower one."""

    observations: int
    beyond: int


def allowed_share(statistic: Statistic, *, is_floor: bool) -> float:
    """Share of the observations that may be beyond a limit on a percentile: 0.01 above an upper limit on p99.

    Below a lower limit (`is_floor`) on p99 it is 0.99.
    """
    return PERCENTILES[statistic] if is_floor else 1 - PERCENTILES[statistic]


def highest_share(found: Beyond) -> float:
    """One-sided upper 95 % bound of Clopper and Pearson on the share of all observations that is beyond the limit.

    It is the share with which so few beyond the limit, or fewer, have a probability of 5 %; 1 if all are beyond it.
    """
    observations, beyond = found
    if beyond >= observations:
        return 1.0
    low, high = beyond / observations, 1.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(beyond, observations, middle) > 1 - CONFIDENCE else (low, middle)
    return high


def lowest_share(found: Beyond) -> float:
    """One-sided lower 95 % bound on the same share."""
    return 1 - highest_share(Beyond(found.observations, found.observations - found.beyond))


def observations_needed(allowed: float, beyond: int = 0) -> int:
    """Fewest observations that show a limit to hold if `beyond` of them are beyond it: 299 for p99 and none."""
    low, high = beyond, beyond + 1
    while _at_most(beyond, high, allowed) > 1 - CONFIDENCE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at_most(beyond, middle, allowed) > 1 - CONFIDENCE else (low, middle)
    return high


def _at_most(successes: int, trials: int, probability: float) -> float:
    """The binomial distribution's probability of at most so many successes, fewer than `trials`, in so many trials."""
    if probability >= 1:
        return 0.0
    counts = np.arange(1, successes + 1)
    ratios = np.log((trials - counts + 1) / counts) + math.log(probability / (1 - probability))
    logarithms = trials * math.log1p(-probability) + np.concatenate([[0.0], np.cumsum(ratios)])
    most = float(logarithms.max())
    return min(1.0, math.exp(most) * float(np.exp(logarithms - most).sum()))


def count_beyond(run: RunData, constraints: Mapping[str, Mapping[Statistic, float]]) -> list[dict[str, object]]:
    """For each limit on a percentile: `metric`, `statistic`, `observations`, and how many of them are `beyond` it.

    `constraints` is metric → statistic → limit. Several observations of one request, such as the gaps between its
    tokens, depend on each other. So there are never more observations than requests; the share beyond the limit stays
    the same, rounded up to a whole one.
    """
    rows: list[dict[str, object]] = []
    requests = sum(len(data.requests) for data in run.rounds.values())
    for tag, limits in constraints.items():
        values = np.concatenate([[], *run.observations[tag].values()])
        for statistic, limit in limits.items():
            if statistic in PERCENTILES:
                beyond = int((values < limit if METRICS.get(tag).higher_is_better else values > limit).sum())
                observations = min(values.size, requests)
                if observations < values.size:
                    beyond = math.ceil(beyond * observations / values.size)
                rows.append(
                    {"metric": tag, "statistic": statistic, "observations": observations, "beyond": beyond},
                )
    return rows
