"""The proof's pairs, their number and their interval, against printed tables and values computed by hand."""

from __future__ import annotations

import math
import random

import pytest

from servelab.search.decide import StartNoise
from servelab.search.proof import (
    ProofPair,
    asked_half_width_percent,
    half_width_percent,
    pair_order,
    pairs_needed,
    proved_change,
)


def pairs_of(logs, level=5.0):
    """Pairs of these log ratios, all of the same level."""
    return [ProofPair(math.exp(level - log / 2), math.exp(level + log / 2)) for log in logs]


def pairs_at(levels, log=0.1):
    """Pairs of these levels, all of the same log ratio."""
    return [ProofPair(math.exp(level - log / 2), math.exp(level + log / 2)) for level in levels]


def test_order_of_starts_alternates_and_begins_with_the_baseline():
    assert [pair_order(number) for number in range(3)] == [
        ("baseline", "winner"),
        ("winner", "baseline"),
        ("baseline", "winner"),
    ]


def test_ratio_and_level_of_a_pair():
    pair = ProofPair(baseline=80.0, winner=125.0)
    assert pair.log_ratio == pytest.approx(math.log(125 / 80))
    assert pair.level == pytest.approx(math.log(100))  # √(80 · 125) = 100


@pytest.mark.parametrize("wrong", [0.0, -3.0, math.nan, math.inf])
def test_a_pair_needs_values_above_0(wrong):
    for pair in (ProofPair(wrong, 1.0), ProofPair(1.0, wrong)):
        with pytest.raises(ValueError, match="above 0"):
            proved_change([pair])
        with pytest.raises(ValueError, match="above 0"):
            pairs_needed([pair] * 3, 5.0, 8)


@pytest.mark.parametrize(
    ("promised", "within", "asked"),
    [(18.0, None, 9.0), (-18.0, None, 9.0), (6.3, None, 3.15), (3.0, None, 2.0), (0.0, None, 2.0), (18.0, 1.5, 1.5)],
)
def test_asked_half_width(promised, within, asked):
    assert asked_half_width_percent(promised, within) == pytest.approx(asked)


# The prior, 2.5 % with 3 degrees of freedom, and three pairs of one level, 2 more: s = √(3 · 0.025² / 5) = 1.93649 %.
# t(0.975, n − 1) · √2 · s / √n is 6.803 % for 3 pairs, 4.358 for 4, 3.400 for 5, 2.874 for 6, 2.533 for 7, 2.290 for 8.
# The asked width is a ratio too: ln 1.07 = 6.766 %, so that 7 % are not 7 hundredths.
@pytest.mark.parametrize(
    ("asked", "needed"),
    [(20, 3), (7.1, 3), (7.0, 4), (4.5, 4), (4.4, 5), (3.5, 5), (3.4, 6), (2.6, 7), (2.5, 8), (2.0, 8), (0.1, 8)],
)
def test_number_of_pairs_for_the_asked_width(asked, needed):
    assert pairs_needed(pairs_at([5.0] * 3), asked, most=8) == needed


def test_number_of_pairs_is_limited():
    quiet = pairs_at([5.0] * 3)
    assert pairs_needed(quiet, 0.1, most=6) == 6
    assert pairs_needed(quiet, 0.1, most=20) == 20
    assert pairs_needed(quiet, 0.1, most=2) == 3  # what is measured stays
    assert pairs_needed(pairs_at([5.0] * 4), 50.0, most=8) == 4


def test_pairs_of_different_levels_ask_for_more():
    # Squares 2 · (0.03² + 0.03²) with 2 degrees of freedom: s = √((3 · 0.025² + 0.0036) / 5) = 3.3091 %; 4 pairs give
    # 7.446 %, 5 give 5.811 %. Without the factor of 2 four pairs would do for 7.5 % (ln 1.075 = 7.232 %).
    first = pairs_at([5.0, 5.03, 4.97])
    assert pairs_needed(first, 7.5, most=8) == 5
    assert pairs_needed(first, 7.8, most=8) == 4  # ln 1.078 = 7.511 %


def test_the_noise_of_the_search_counts():
    # s = √(20 · 0.01² / 22) = 0.95346 %: 3 pairs give 3.350 % (ln 1.035 = 3.440 %).
    assert pairs_needed(pairs_at([5.0] * 3), 3.5, most=8, noise=StartNoise(1.0, 20.0)) == 3
    assert pairs_needed(pairs_at([5.0] * 3), 3.4, most=8, noise=StartNoise(1.0, 20.0)) == 4
    assert pairs_needed(pairs_at([5.0] * 3), 3.5, most=8, noise=StartNoise(9.0, 20.0)) == 8


def test_the_number_of_pairs_does_not_depend_on_the_change_or_on_how_it_scatters():
    for logs in ([0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [-0.4, 0.9, 0.1]):
        assert pairs_needed(pairs_of(logs), 4.5, most=8) == 4


# t(0.975, n − 1): 12.7062, 4.30265, 2.77645. The log ratios have a mean of 0.11 and a standard deviation of 0.01.
@pytest.mark.parametrize(
    ("logs", "half"),
    [
        ([0.11 - 0.01 / 2**0.5, 0.11 + 0.01 / 2**0.5], 12.7062 * 0.01 / 2**0.5),
        ([0.12, 0.10, 0.11], 4.30265 * 0.01 / 3**0.5),
        ([0.11 - 0.01 * 2**0.5, 0.11, 0.11, 0.11, 0.11 + 0.01 * 2**0.5], 2.77645 * 0.01 / 5**0.5),
    ],
)
def test_up_to_five_pairs_have_students_interval(logs, half):
    expected = [100 * math.expm1(0.11 + offset) for offset in (0, -half, half)]
    assert proved_change(pairs_of(logs)) == pytest.approx(expected, rel=1e-5)


def test_one_pair_has_no_interval():
    assert proved_change([ProofPair(100.0, 90.0)]) == (pytest.approx(-10), None, None)
    with pytest.raises(ValueError):
        proved_change([])


# Critical values of the signed-rank test at 5 %, two-sided, from printed tables: so many means of two are left out.
@pytest.mark.parametrize(("count", "left_out"), [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (20, 52)])
def test_six_or_more_pairs_have_the_signed_rank_interval(count, left_out):
    logs = [0.01 * 1.4**number for number in range(count)]
    means = sorted((logs[i] + logs[j]) / 2 for i in range(count) for j in range(i, count))
    _, low, high = proved_change(pairs_of(logs))
    assert low == pytest.approx(100 * math.expm1(means[left_out]))
    assert high == pytest.approx(100 * math.expm1(means[-1 - left_out]))


def test_eight_pairs_by_hand():
    # 0 to 7 %: the means of any two in order are 0, 0.5, 1, 1, … and 7, 6.5, 6, 6, …; 3 are left out on each side.
    change = proved_change(pairs_of([0.03, 0.0, 0.07, 0.01, 0.06, 0.02, 0.05, 0.04]))
    assert change == pytest.approx([100 * math.expm1(log) for log in (0.035, 0.01, 0.06)])


def test_one_odd_pair_of_eight_neither_makes_the_gain_nor_hides_it():
    # Student's interval would reach from 1.6 to 14 %.
    value, low, high = proved_change(pairs_of([0.05, 0.051, 0.049, 0.052, 0.048, 0.05, 0.051, 0.25]))
    assert value == pytest.approx(5.2, abs=0.1)
    assert low == pytest.approx(100 * math.expm1(0.049))  # after 4.8, 4.85 and twice 4.9 %
    assert high > 15


@pytest.mark.parametrize("count", [3, 5, 6, 8])
def test_order_of_pairs_does_not_matter_and_exchanged_sides_mirror_the_change(count):
    draw = random.Random(count)
    pairs = [ProofPair(draw.uniform(90, 110), draw.uniform(95, 120)) for _ in range(count)]
    change = proved_change(pairs)
    assert proved_change(pairs[::-1]) == pytest.approx(change)
    value, low, high = proved_change([ProofPair(pair.winner, pair.baseline) for pair in pairs])
    mirrored = [100 * (1 / (1 + each / 100) - 1) for each in (value, high, low)]
    assert mirrored == pytest.approx(change)


def test_what_both_of_a_pair_share_is_not_in_the_change():
    for count in (4, 7):
        pairs = [ProofPair(100 * share, 103 * share) for share in (1.0, 0.7, 2.1, 0.4, 1.3, 0.9, 1.1)[:count]]
        assert proved_change(pairs) == pytest.approx((3.0, 3.0, 3.0))


@pytest.mark.parametrize(("low", "high", "half"), [(0, 21, 10), (-19, 0, 11.1111), (10, 33.1, 10)])
def test_half_width_is_between_ratios(low, high, half):
    assert half_width_percent(low, high) == pytest.approx(half, abs=1e-4)
