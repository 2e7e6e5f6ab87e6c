"""The mean of skewed values, such as distances: most are small and a few are large."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from servelab.metrics.statistics import Interval, t_quantile


def skewed_mean(values: Sequence[float], confidence: float) -> Interval:
    """Mean with Hall's interval, which corrects Student's for the skewness of the values; no ends below three values.

    Hall 1992, J. R. Stat. Soc. B 54, 221 (the cubic transformation), with Student's quantiles. Student's interval ends
    too low for distances: it takes a mean at the limit for one below it too often. Raises `ValueError` on no values.
    """
    count, mean = len(values), statistics.fmean(values)
    if count < 3:
        return Interval(mean, None, None)
    deviation = statistics.stdev(values, mean)
    if deviation == 0:
        return Interval(mean, mean, mean)
    skewness = math.fsum(((value - mean) / deviation) ** 3 for value in values) / count
    quantile = t_quantile((1 + confidence) / 2, count - 1) / math.sqrt(count)
    low, high = (mean - deviation * _corrected(at, skewness, count) for at in (quantile, -quantile))
    return Interval(mean, low, high)


def _corrected(distance: float, skewness: float, count: int) -> float:
    """Distance of the mean from the truth, in standard deviations, at which Hall's statistic is `distance`."""
    if abs(skewness) < 1e-6:  # the limit for no skewness, where the formula divides by it
        return distance
    return 3 / skewness * (math.cbrt(1 + skewness * (distance - skewness / (6 * count))) - 1)
