"""The proof's pairs, their number and their interval, against printed tables and values computed by hand."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from made_search import choices, of

from servelab.search.proof import (
    ProofPair,
    asked_half_width_percent,
    half_width_percent,
    looks,
    pairs_wanted,
    proved_change,
    uneven_starts,
)
from servelab.search.simulate import Measured, simulate_project


def pairs_of(logs, level=5.0):
    """Pairs of these log ratios, all of the same level."""
    return [ProofPair(math.exp(level - log / 2), math.exp(level + log / 2)) for log in logs]


@pytest.mark.parametrize("wrong", [0.0, -3.0, math.nan, math.inf])
def test_a_pair_needs_values_above_0(wrong):
    for pair in (ProofPair(wrong, 1.0), ProofPair(1.0, wrong)):
        with pytest.raises(ValueError, match="above 0"):
            proved_change([pair])


@pytest.mark.parametrize(
    ("promised", "within", "asked"),
    [(18.0, None, 9.0), (-18.0, None, 9.0), (6.3, None, 3.15), (3.0, None, 2.0), (0.0, None, 2.0), (18.0, 1.5, 1.5)],
)
def test_asked_half_width(promised, within, asked):
    assert asked_half_width_percent(promised, within) == pytest.approx(asked)


def test_a_proof_ends_after_the_first_batch_halfway_or_at_the_end():
    assert [looks(*each) for each in ((3, 8), (3, 4), (3, 3), (4, 10))] == [[3, 6, 8], [3, 4], [3], [4, 7, 10]]


# Three ratios or levels of standard deviation 1 %: t(0.975, 2) / √3 = 2.48414, times 1 % for ratios and 2 % for levels.
@pytest.mark.parametrize(
    ("log_sd", "level_sd", "half"), [(0.01, 0.0, 2.48414), (0.0, 0.01, 4.96828), (0.01, 0.01, 4.96828)]
)
def test_pairs_are_enough_where_ratios_and_levels_are_as_narrow_as_asked(log_sd, level_sd, half):
    pairs = [
        ProofPair(math.exp(level - log / 2), math.exp(level + log / 2))
        for log, level in ((0.3 + at * log_sd, 5 + at * level_sd) for at in (-1, 0, 1))
    ]
    for asked, wanted in ((1.001 * half, 3), (0.999 * half, 6)):
        assert pairs_wanted(pairs, 100 * math.expm1(asked / 100), [3, 6, 8]) == wanted


def test_more_pairs_are_wanted_up_to_the_last_look_and_if_the_search_saw_another_level():
    quiet = pairs_of([0.1, 0.1, 0.1])
    assert pairs_wanted(quiet, 2.0, [3, 6, 8]) == pairs_wanted(quiet, 2.0, [3, 6, 8], levels=[5.0]) == 3
    assert pairs_wanted(quiet, 2.0, [3, 6, 8], levels=[5.05]) == 6
    loud = pairs_of([0.3, -0.3] * 4)
    assert [pairs_wanted(loud[:count], 2.0, [3, 6, 8]) for count in (3, 6, 7, 8)] == [6, 8, 8, 8]


def test_what_the_order_of_the_starts_does_is_not_in_the_change():
    noise = (0.002, -0.001, 0.0, 0.003, -0.002, 0.001, 0.0, -0.003)

    def pair(number, second):
        order = 1 if number % 2 == 0 else -1
        value = math.exp(0.05 + noise[number] + order * math.log(second))
        return ProofPair(100.0, 100.0 * value, order)

    with_effect, without = (proved_change([pair(number, each) for number in range(8)]) for each in (0.97, 1.0))
    assert with_effect == pytest.approx(without)
    assert without.value == pytest.approx(100 * math.expm1(0.05), abs=0.2)


@pytest.mark.parametrize(
    ("baseline", "winner", "text"),
    [
        ([1, 2, 0, 1, 2, 0, 1, 2], [5, 6, 4, 5, 6, 4, 5, 6], None),
        ([1, 2, 0, 1, 2, 0, 1, 2], [5, 6, -17, 5, 6, 4, 5, 6], "1 of 8 starts of the winner is 20 % lower"),
        ([1, 2, 9, 9, 2, 0, 9, 8], [5, 6, 14, 5, 13, 4, 5, 14], "3 of 8 starts of the winner are 9 % higher"),
        ([1, 2, 0, 1, 2, 0, 1, 2], [5, 0, 10, 3, 8, 2, 12, 6], "the starts of the winner scatter 5 times as much"),
    ],
)
def test_starts_that_are_uneven_on_a_side_are_named(baseline, winner, text):
    pairs = [ProofPair(math.exp(one / 100), math.exp(other / 100)) for one, other in zip(baseline, winner, strict=True)]
    found = uneven_starts(pairs)
    assert found is None if text is None else text in found


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


def test_what_both_of_a_pair_share_is_not_in_the_change():
    for count in (4, 7):
        pairs = [ProofPair(100 * share, 103 * share) for share in (1.0, 0.7, 2.1, 0.4, 1.3, 0.9, 1.1)[:count]]
        assert proved_change(pairs) == pytest.approx((3.0, 3.0, 3.0))


@pytest.mark.parametrize(("low", "high", "half"), [(0, 21, 10), (-19, 0, 11.1111), (10, 33.1, 10)])
def test_half_width_is_between_ratios(low, high, half):
    assert half_width_percent(low, high) == pytest.approx(half, abs=1e-4)


# through whole simulated studies

GAIN = {"": 100, "A": 130, "B": 90, "AB": 120}


def disturbed_in(lost, values):
    """Measures by a table; the pairs of the proof with these numbers are disturbed however often they are measured."""

    def measure(configuration, load, start):
        found = of(values)(configuration, load, start)
        return Measured(found.rounds, disturbed=start.startswith("proof") and int(start.rsplit("-", 1)[1]) in lost)

    return measure


def test_a_pair_that_does_not_count_is_made_up_for(two):
    found = simulate_project(two(), disturbed_in({0}, GAIN))
    assert (found.verdict, found.proof.pairs) == ("better", 3)


@pytest.mark.parametrize(("count", "verdict", "winner"), [(2, "better", "A"), (1, "disturbed", "")])
def test_a_proof_of_which_fewer_than_two_pairs_count_is_disturbed(two, study_content, count, verdict, winner):
    """It has `proof.most_pairs`, and no more for those that do not count."""
    numbers, measure = set(), disturbed_in(set(range(count, 20)), GAIN)

    def noted(configuration, load, start):
        numbers.add(start.rsplit("-", 1)[1])
        return measure(configuration, load, start)

    study_content["proof"] = {"most_pairs": 4}
    found = simulate_project(two(), noted)
    assert numbers == set("0123")
    assert (found.verdict, found.proof.pairs, choices(found.winner)) == (verdict, count, winner)
    assert f"{4 - count} of its 4 pairs do not count" in found.proof.why


def test_a_promise_near_the_narrowest_width_gets_all_pairs(two):
    draw = random.Random(3)

    def proved(gain):
        values = {"": 100, "A": gain, "B": 90, "AB": 95}
        return simulate_project(two(), lambda *of: Measured([values[choices(of[0])] * draw.gauss(1, 0.002)]))

    small, large = proved(103.5), proved(130)
    assert (small.proof.pairs, large.proof.pairs) == (8, 3)


def test_a_search_that_saw_another_level_asks_for_more_pairs(two):
    """Starts of the search scatter, those of the proof do not."""
    numbers = itertools.count()

    def measure(configuration, load, start):
        value = {"": 100.0, "A": 170.0, "B": 90.0, "AB": 150.0}[choices(configuration)]
        return Measured([value * (1 if start.startswith("proof") else (0.75, 1.25)[next(numbers) % 2])])

    quiet = simulate_project(two(), of({"": 100, "A": 170, "B": 90, "AB": 150}))
    assert (quiet.proof.pairs, simulate_project(two(), measure).proof.pairs) == (3, 6)


def test_a_made_run_gives_rounds_or_why_it_failed():
    with pytest.raises(ValueError, match="one round at least"):
        Measured()
