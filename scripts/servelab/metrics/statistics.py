"""Means, changes and their 95 % intervals over the rounds of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class Interval(NamedTuple):
    """An estimate and its 95 % interval; `low` and `high` are None where too few rounds allow none."""

    value: float
    low: float | None
    high: float | None


def change_columns(change: Interval | None) -> dict[str, float | None]:
    """A change in percent and the ends of its interval, by the names that tables and files have for them."""
    names = ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")
    return dict(zip(names, change or (None, None, None), strict=True))


def mean_ci95(values: Sequence[float]) -> Interval:
    """Mean of independent rounds: mean ± t(0.975, n − 1) · s / √n, Student's interval; None below 2 rounds.

    Raises `ValueError` on no values.
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = t_quantile(0.975, len(values) - 1) * math.sqrt(_variance_of_mean(values))
    return Interval(mean, mean - half, mean + half)


def ratio_interval(baseline: Sequence[float], values: Sequence[float]) -> Interval:
    """Change of the mean against the baseline's, in percent, with its 95 % interval; None below 2 rounds in either.

    Fieller's interval for the ratio of two means of unequal variance (J. R. Stat. Soc. B 16, 175, 1954), with
    Satterthwaite's degrees of freedom, as R's `mratios::ttestratio(var.equal = FALSE)`. If the baseline's own interval
    reaches 0, it is −inf to inf. Raises `ValueError` on no values and on a baseline mean that is not above 0.
    """
    mean, base = statistics.fmean(values), statistics.fmean(baseline)
    if base <= 0:
        raise ValueError(f"a change needs a baseline above 0, not {base:g}")
    ratio = mean / base
    change = 100 * (ratio - 1)
    if len(values) < 2 or len(baseline) < 2:
        return Interval(change, None, None)
    variance, base_variance = _variance_of_mean(values), _variance_of_mean(baseline)
    scaled = ratio**2 * base_variance
    if variance + scaled == 0:
        return Interval(change, change, change)
    freedom = (variance + scaled) ** 2 / (variance**2 / (len(values) - 1) + scaled**2 / (len(baseline) - 1))
    t = t_quantile(0.975, max(1.0, freedom))
    # The ratios r with (mean − r·base)² ≤ t² (variance + r²·base_variance): between the roots of a parabola.
    a = base**2 - t**2 * base_variance
    if a <= 0:
        return Interval(change, -math.inf, math.inf)
    b = mean * base
    half = math.sqrt(max(0.0, b**2 - a * (mean**2 - t**2 * variance)))
    return Interval(change, 100 * ((b - half) / a - 1), 100 * ((b + half) / a - 1))


def _variance_of_mean(values: Sequence[float]) -> float:
    return statistics.variance(values) / len(values)


@lru_cache
def t_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t distribution, for probabilities from 0.95 on and at least 1 degree of freedom.

    Newton's method on the upper tail, with the continued fraction of the incomplete beta function, DLMF 8.17.22, at
    x = freedom / (freedom + t²), a = freedom / 2, b = 1 / 2. SciPy would take 140 MB and half a second to import.
    """
    t = statistics.NormalDist().inv_cdf(probability)
    a, peak = freedom / 2, math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    step = math.inf
    while step > 1e-12 * t:
        x = freedom / (freedom + t * t)
        fraction = 1.0
        for m in range(50, -1, -1):
            fraction = 1 + (m + 1) * (-m - 0.5) * x / ((a + 2 * m + 1) * (a + 2 * m + 2)) / fraction
            fraction = 1 - (a + m) * (a + m + 0.5) * x / ((a + 2 * m) * (a + 2 * m + 1)) / fraction
        density = math.exp(peak - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = t / (freedom * fraction) - (1 - probability) / density
        t += step
    return t


LEAST_RANKED = 6
"""From so many pairs on there is a signed-rank interval of 95 %."""


def change_of_pairs(log_ratios: Sequence[float], orders: Sequence[int] = (), apart: float = 0.0) -> Interval:
    """Change in percent from the natural logarithm of each pair's ratio, with its 95 % interval; None below 2 pairs.

    Up to five pairs: the mean of the logarithms with Student's interval. From six pairs on: the median of the means of
    any two (Hodges-Lehmann), with Wilcoxon's signed-rank interval: Hollander, Wolfe and Chicken, "Nonparametric
    Statistical Methods", 3rd ed., sections 3.2 and 3.3. It covers 95 to 97 % for any symmetric noise and is 9 % wider
    than Student's for normal noise. Where `orders` are given (1: the baseline was started first, -1: second), what the
    order does is then removed, and the interval is wider by what the estimate of it costs, 2 to 4 %. `apart` is the
    logarithm by which the ratios may be too low (too high if negative): that end is further out by it. Raises
    `ValueError` on no pairs.
    """
    if len(log_ratios) < LEAST_RANKED:
        value, low, high = mean_ci95(log_ratios)
    else:
        value, low, high = _signed_rank_ci95(log_ratios, order_effect(log_ratios, orders), orders)
    if low is None or high is None:
        return Interval(percent_of(value), None, None)
    return Interval(*map(percent_of, (value, low + min(apart, 0.0), high + max(apart, 0.0))))


def order_effect(log_ratios: Sequence[float], orders: Sequence[int]) -> float | None:
    """Logarithm of the second start of a pair against the first one, if all else is equal; None if it is not known.

    Half of the median of the differences between pairs of the two orders (Hodges-Lehmann for two samples).
    """
    sides = [[ratio for ratio, order in zip(log_ratios, orders, strict=False) if order == of] for of in (1, -1)]
    differences = [one - other for one in sides[0] for other in sides[1]]
    return statistics.median(differences) / 2 if differences else None


def _signed_rank_ci95(values: Sequence[float], effect: float | None, orders: Sequence[int]) -> Interval:
    count, wider = len(values), 1.0
    if effect is not None:
        values = [value - effect * order for value, order in zip(values, orders, strict=True)]
        wider = t_quantile(0.975, count - 2) / t_quantile(0.975, count - 1) * math.sqrt((count - 1) / (count - 2))
    means = sorted((one + other) / 2 for number, one in enumerate(values) for other in values[number:])
    outside, middle = _means_left_out(count), statistics.median(means)
    low, high = (middle + wider * (end - middle) for end in (means[outside], means[-1 - outside]))
    return Interval(middle, low, high)


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


def percent_of(log_change: float) -> float:
    """A change in percent, of its natural logarithm."""
    return 100 * math.expm1(log_change)
