"""The change of pairs of measurements, each with its own baseline next to it, and its 95 % interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from servelab.metrics.statistics import Interval, mean_ci95

LEAST_RANKED = 6
"""From so many pairs on there is a signed-rank interval of 95 %."""


def change_of_pairs(log_ratios: Sequence[float]) -> Interval:
    """Change in percent from the natural logarithm of each pair's ratio, with its 95 % interval; None below 2 pairs.

    Up to five pairs: the mean of the logarithms with Student's interval. From six pairs on: the median of the means of
    any two (each with itself too), with Wilcoxon's signed-rank interval: Hollander, Wolfe and Chicken, "Nonparametric
    Statistical Methods", 3rd ed., sections 3.2 and 3.3. It covers 95 % or a little more (96.9 % at 6 pairs, 95.3 % at
    7, 96.1 % at 8) whatever the shape of the noise, if that is alike on both sides; Student's covers 98 % where some
    starts are much slower than others. The price is a 9 % wider interval for normal noise. Which of two applies depends
    on the number alone. Raises `ValueError` on no pairs.
    """
    few = len(log_ratios) < LEAST_RANKED
    value, low, high = mean_ci95(log_ratios) if few else _signed_rank_ci95(log_ratios)
    return Interval(_percent(value), None if low is None else _percent(low), None if high is None else _percent(high))


def _signed_rank_ci95(values: Sequence[float]) -> Interval:
    means = sorted((one + other) / 2 for number, one in enumerate(values) for other in values[number:])
    outside = _means_left_out(len(values))
    return Interval(statistics.median(means), means[outside], means[-1 - outside])


@lru_cache
def _means_left_out(count: int) -> int:
    """How many of the smallest and of the largest means of two values lie outside the signed-rank interval of 95 %.

    The largest k with P(T < k) ≤ 0.025. T is the sum of the ranks of the values on one side of the truth: each rank
    is on it or not with probability 1/2.
    """
    ways = [1]  # ways[sum] = number of sets of ranks with that sum
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    left_out, below = 0, 0
    while 40 * (below + ways[left_out]) <= 2**count:
        below += ways[left_out]
        left_out += 1
    return left_out - 1


def _percent(log_change: float) -> float:
    return 100 * math.expm1(log_change)
