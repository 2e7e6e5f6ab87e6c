"""Intervals: against printed tables, and by how often they hold the truth."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from scipy.special import stdtrit

from servelab.metrics.statistics import (
    mean_ci95,
    ratio_interval,
    t_quantile,
)
from servelab.search.decide import PRIOR, StartNoise, pooled_noise


# t(0.975, n − 1), from printed tables.
@pytest.mark.parametrize(("n", "t"), [(2, 12.7062), (3, 4.30265), (6, 2.57058), (31, 2.04227)])
def test_mean_ci95_is_students(n, t):
    values = [100 + (-1) ** i * i for i in range(n)]
    mean, low, high = mean_ci95(values)
    half = t * statistics.stdev(values) / math.sqrt(n)
    assert (mean, low, high) == pytest.approx((statistics.fmean(values), mean - half, mean + half), rel=1e-5)


@pytest.mark.parametrize("freedom", [1, 1.2, 2, 2.7, 3, 5.5, 10, 33.3, 100, 1000])
@pytest.mark.parametrize("probability", [0.95, 0.975, 0.995, 0.9995, 0.999995])
def test_the_quantile_of_students_distribution_is_that_of_scipy(probability, freedom):
    assert t_quantile(probability, freedom) == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-12)


def test_change_and_its_interval():
    change, low, high = ratio_interval([99.8, 100.0, 100.2], [119.76, 120.0, 120.24])
    assert change == pytest.approx(20)
    # Both vary by 0.2 %: Satterthwaite's degrees of freedom are 4, and so little noise makes it the delta method's.
    half = 2.77645 * 120 * math.sqrt(2 * 0.002**2 / 3)
    assert (low, high) == pytest.approx((20 - half, 20 + half), rel=1e-3)


def test_interval_is_where_the_ratio_test_of_the_means_just_rejects():
    baseline, values = [90.0, 100.0, 104.0], [118.0, 121.0, 130.0]
    _, low, high = ratio_interval(baseline, values)
    errors = []
    for change in (low, high):
        scaled = [(1 + change / 100) * value for value in baseline]
        spread = math.sqrt(statistics.variance(values) / 3 + statistics.variance(scaled) / 3)
        errors.append(abs(statistics.fmean(values) - statistics.fmean(scaled)) / spread)
    assert errors[0] == pytest.approx(errors[1])  # the same t at both ends
    assert 2.77645 < errors[0] < 4.30265  # between 4 and 2 degrees of freedom


@pytest.mark.parametrize(("rounds", "spreads"), [((3, 3), (2, 2)), ((3, 5), (1, 4)), ((8, 8), (3, 1))])
def test_the_interval_holds_the_true_change_in_95_of_100(rounds, spreads):
    draw = random.Random(7)
    held = 0
    for _ in range(4000):
        baseline = [draw.gauss(100, spreads[0]) for _ in range(rounds[0])]
        values = [draw.gauss(103, spreads[1]) for _ in range(rounds[1])]
        _, low, high = ratio_interval(baseline, values)
        held += low <= 3 <= high
    assert 0.94 <= held / 4000 <= 0.98


# noise between starts


def test_without_repeated_starts_the_prior_is_the_noise():
    assert pooled_noise([]) == pooled_noise([[100.0], [37.0]]) == PRIOR == StartNoise(2.5, 3.0)


def test_noise_is_pooled_within_configurations_and_added_to_the_prior():
    # Squares about each configuration's own mean: 2 · 0.05² and 2 · 0.03²; degrees of freedom 1 and 2.
    starts = [
        [100.0, 100 * math.exp(0.1)],
        [50.0],
        [7.0, 7 * math.exp(0.03), 7 * math.exp(-0.03)],
    ]
    noise = pooled_noise(starts)
    assert noise.freedom == 6
    assert noise.sd_percent == pytest.approx(100 * math.sqrt((3 * 0.025**2 + 0.0068) / 6))
    assert noise.sd_percent == pytest.approx(3.8024, abs=1e-4)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_start_without_a_value_above_0_is_refused(wrong):
    with pytest.raises(ValueError, match="above 0"):
        pooled_noise([[1.0, wrong]])
