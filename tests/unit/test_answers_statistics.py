"""Statistics of paired answers, compared with other ways to compute the same."""

from __future__ import annotations

import math
import random
import statistics
from functools import cache

import pytest
from scipy import optimize, stats

from servelab.answers.comparison import mcnemar_p, paired_difference, share_interval
from servelab.answers.instruments.agreement import edit_distance
from servelab.answers.instruments.distance import skewed_mean


@pytest.mark.parametrize(
    ("lost", "gained"), [(0, 0), (1, 0), (6, 0), (0, 6), (5, 2), (2, 5), (9, 9), (40, 61), (900, 1100)]
)
def test_mcnemar_is_the_binomial_test(lost, gained):
    expected = stats.binomtest(lost, lost + gained, 0.5).pvalue if lost + gained else 1.0
    assert mcnemar_p(lost, gained) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (1, 20), (57, 200), (999, 1000)])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_interval_of_a_share_is_wilson_s(count, total, confidence):
    expected = stats.binomtest(count, total).proportion_ci(confidence, method="wilson")
    found = share_interval(count, total, confidence)
    assert found == pytest.approx((count / total, expected.low, expected.high))


def score(lost: int, gained: int, total: int, difference: float) -> float:
    """Tango's statistic, with the nuisance parameter by a search for the largest likelihood."""
    rest = total - lost - gained

    def loss(share: float) -> float:
        parts = [(lost, share + difference), (gained, share), (rest, 1 - 2 * share - difference)]
        return -sum(number * math.log(part) for number, part in parts if number)

    low, high = max(0.0, -difference) + 1e-12, (1 - difference) / 2 - 1e-12
    share = optimize.minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
    return (lost - gained - total * difference) / math.sqrt(total * (2 * share + difference * (1 - difference)))


@pytest.mark.parametrize(
    ("lost", "gained", "total"), [(12, 2, 50), (2, 12, 50), (7, 7, 200), (30, 21, 1000), (9, 1, 200)]
)
def test_the_interval_of_a_loss_is_tango_s(lost, gained, total):
    found = paired_difference(lost, gained, total)
    assert found.value == (lost - gained) / total
    assert score(lost, gained, total, found.low) == pytest.approx(1.959964, abs=2e-3)
    assert score(lost, gained, total, found.high) == pytest.approx(-1.959964, abs=2e-3)


def plain_distance(one: str, other: str) -> int:
    @cache
    def rest(here: int, there: int) -> int:
        if here == len(one) or there == len(other):
            return len(one) - here + len(other) - there
        if one[here] == other[there]:
            return rest(here + 1, there + 1)
        return 1 + min(rest(here + 1, there), rest(here, there + 1), rest(here + 1, there + 1))

    return rest(0, 0)


def test_edit_distance_is_that_of_the_plain_recursion():
    rng = random.Random(5)
    for _ in range(400):
        one, other = ("".join(rng.choices("abc", k=rng.randint(0, 12))) for _ in range(2))
        assert edit_distance(one, other) == plain_distance(one, other), (one, other)
    assert edit_distance("x" * 3000, "y" * 2000) == 3000


def hall(values: list[float], truth: float) -> float:
    """Hall's statistic of a mean, computed forward."""
    count = len(values)
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    skewness = sum(((value - mean) / deviation) ** 3 for value in values) / count
    w = (mean - truth) / deviation
    return math.sqrt(count) * (w + skewness * w**2 / 3 + skewness**2 * w**3 / 27 + skewness / (6 * count))


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_interval_of_a_skewed_mean_is_hall_s(confidence):
    rng = random.Random(2)
    values = [rng.lognormvariate(0, 1) for _ in range(50)]
    found = skewed_mean(values, confidence)
    quantile = stats.t.ppf((1 + confidence) / 2, 49)
    assert found.value == statistics.fmean(values)
    assert hall(values, found.low) == pytest.approx(quantile)
    assert hall(values, found.high) == pytest.approx(-quantile)
    assert found.high - found.value > found.value - found.low
