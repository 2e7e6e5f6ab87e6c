"""Means, changes and their 95 % intervals over the rounds of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """An estimate and its 95 % interval; `low` and `high` are None where too few rounds allow none."""

    value: float
    low: float | None
    high: float | None


def mean_ci95(values: Sequence[float]) -> Interval:
    """Mean of independent rounds: mean ± t(0.975, n − 1) · s / √n, Student's interval; None below 2 rounds.

    Raises `ValueError` on no values.
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = _t(0.975, len(values) - 1) * math.sqrt(_variance_of_mean(values))
    return Interval(mean, mean - half, mean + half)


def relative_half_width_percent(values: Sequence[float]) -> float:
    """Half the width of `mean_ci95` in percent of the mean; infinite below 2 rounds or where the mean is 0."""
    mean, low, high = mean_ci95(values)
    if low is None or high is None or mean == 0:
        return math.inf
    return 100 * (high - low) / 2 / abs(mean)


def pooled_relative_half_widths(samples: Sequence[Sequence[float]]) -> list[float]:
    """Half the width of each sample's 95 % interval as a share of its mean, by the noise of all samples together.

    The pooled variance within the samples, as in an analysis of variance, of values relative to their sample's mean:
    s² = Σ (value / mean − 1)² / Σ (n − 1); half width = t(0.975, Σ (n − 1)) · s / √n. Infinite where there is no such
    sample of two, or none of values above 0.
    """
    usable = [values for values in samples if len(values) > 1 and statistics.fmean(values) > 0]
    freedom = sum(len(values) - 1 for values in usable)
    if not freedom:
        return [math.inf] * len(samples)
    squares = sum((value / statistics.fmean(values) - 1) ** 2 for values in usable for value in values)
    spread = _t(0.975, freedom) * math.sqrt(squares / freedom)
    return [spread / math.sqrt(len(values)) if values else math.inf for values in samples]


def ratio_ci95(baseline: Sequence[float], values: Sequence[float]) -> Interval:
    """Change of the mean against the baseline's, in percent, with its 95 % interval; see `ratio_interval`."""
    return ratio_interval(baseline, values, 0.95)


def ratio_interval(baseline: Sequence[float], values: Sequence[float], confidence: float) -> Interval:
    """Change of the mean against the baseline's, in percent, with its interval; None below 2 rounds in either.

    Fieller's interval for the ratio of the means of two independent normal samples of unequal variance, with
    Satterthwaite's degrees of freedom at the estimated ratio, no fewer than 1: Fieller 1954, "Some problems in
    interval estimation", J. R. Stat. Soc. B 16, 175; as R's `mratios::ttestratio(var.equal = FALSE)` computes it.
    Where the baseline's own interval reaches 0 the change is unbounded: −inf and inf. Raises `ValueError` on no
    values and on a baseline whose mean is not above 0.
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
    t = _t((1 + confidence) / 2, max(1.0, freedom))
    # The ratios r with (mean − r·base)² ≤ t² (variance + r²·base_variance): between the roots of a parabola.
    a = base**2 - t**2 * base_variance
    if a <= 0:
        return Interval(change, -math.inf, math.inf)
    b = mean * base
    half = math.sqrt(max(0.0, b**2 - a * (mean**2 - t**2 * variance)))
    return Interval(change, 100 * ((b - half) / a - 1), 100 * ((b + half) / a - 1))


def paired_ratio_ci95(baseline: Sequence[float], values: Sequence[float]) -> Interval:
    """Change against the baseline, in percent, of rounds measured in pairs: each value beside its own baseline's.

    The geometric mean of the pairs' ratios, with Student's interval of the mean of their logarithms; None below 2
    pairs. What disturbs both of a pair alike cancels. Raises `ValueError` on unequal lengths, no pairs, or a value
    that is not above 0.
    """
    if len(baseline) != len(values) or any(value <= 0 for value in [*baseline, *values]):
        raise ValueError("pairs of values above 0 are needed")
    logs = mean_ci95([math.log(value / base) for base, value in zip(baseline, values, strict=True)])
    change, low, high = (None if end is None else 100 * math.expm1(end) for end in logs)
    assert change is not None
    return Interval(change, low, high)


def _variance_of_mean(values: Sequence[float]) -> float:
    return statistics.variance(values) / len(values)


def _t(probability: float, freedom: float) -> float:
    # A quarter of a short job's time to load, and most jobs compute no interval.
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(freedom, probability))
