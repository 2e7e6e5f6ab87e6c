"""Statistics of paired answers, compared with other ways to compute the same."""

from __future__ import annotations

import math

import pytest
from scipy import optimize

from servelab.answers.comparison import paired_difference


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
