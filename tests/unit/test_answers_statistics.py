"""Statistics of paired answers, compared with other ways to compute the same."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from scipy import optimize, stats

from servelab.answers.comparison import paired_difference
from servelab.answers.instruments import skewed_mean


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
