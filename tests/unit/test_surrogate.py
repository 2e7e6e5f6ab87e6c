"""The model of options: what it expects, how unsure it is, and which combinations say most."""

import itertools

import numpy as np
import pytest

from servelab.search.decide import StartNoise
from servelab.search.failures import probability_of_failure
from servelab.search.options_space import design
from servelab.search.surrogate import Measurements, Surrogate

COUNTS = (2, 2, 3)
ALL = np.array(list(itertools.product(*map(range, COUNTS))))
QUIET = StartNoise(0.5, 100)


def fitted(values, at, starts=1.0, noise=QUIET):
    measurements = Measurements(ALL[at], np.asarray(values, dtype=float), np.full(len(at), starts), noise)
    return Surrogate(measurements, COUNTS)


def position(*levels):
    return int(np.flatnonzero((levels == ALL).all(1))[0])


def test_effects_that_add_up_are_carried_over():
    """Each option measured alone: the model expects both gains of the combination that was not measured."""
    truth = np.log(100) + 0.10 * (ALL[:, 0] == 1) + 0.08 * (ALL[:, 2] == 2) - 0.05 * (ALL[:, 1] == 1)
    at = [position(0, 0, 0), position(1, 0, 0), position(0, 1, 0), position(0, 0, 1), position(0, 0, 2)]
    expected = fitted(truth[at], at).at(ALL).expected()
    assert int(expected.argmax()) == position(1, 0, 2)
    assert expected[position(1, 0, 2)] - expected[0] == pytest.approx(0.15, abs=0.05)


def test_options_that_only_help_together_are_expected_to():
    truth = 0.15 * ((ALL[:, 0] == 1) & (ALL[:, 1] == 1))
    at = [number for number in range(len(ALL)) if number != position(1, 1, 2)]
    expected = fitted(truth[at], at).at(ALL).expected()
    assert int(expected[[position(1, 1, 2), position(1, 0, 2), position(0, 1, 2)]].argmax()) == 0
    assert expected[position(1, 1, 2)] == pytest.approx(0.15, abs=0.03)


def test_it_is_sure_of_what_is_measured_and_unsure_of_what_is_not():
    at = [position(0, 0, 0), position(1, 1, 0), position(0, 1, 1)]
    prediction = fitted([0.0, 0.1, 0.05], at).at(ALL)
    variance = prediction.variance.mean(0)
    measured, others = variance[at].mean(), np.delete(variance, at).mean()
    assert measured < 0.1 * others


def test_measuring_what_was_expected_leaves_less_to_gain():
    at = [position(0, 0, 0), position(1, 1, 0), position(0, 1, 1)]
    prediction = fitted([0.0, 0.1, 0.05], at).at(ALL)
    best = prediction.mean[:, at].max(1)
    before = prediction.expected_gain(best)
    chosen = int(before.argmax())
    variance = prediction.variance.copy()
    prediction.believe(chosen)
    assert prediction.expected_gain(best)[chosen] < 0.5 * before[chosen]
    assert (prediction.variance <= variance + 1e-15).all()


def test_the_difference_of_two_is_surer_than_either():
    """What both share, the overall level and other options, cancels."""
    at = [position(0, 0, 0), position(1, 1, 0), position(0, 1, 1)]
    prediction = fitted([0.0, 0.1, 0.05], at).at(ALL)
    one, other = position(0, 0, 2), position(1, 0, 2)
    gains, scatters = prediction.differences(other)
    expected, variance = prediction.expected(), prediction.variance.mean(0)
    assert gains[one] == pytest.approx(expected[one] - expected[other])
    assert 0 < scatters[one] < np.sqrt(variance[one] + variance[other])
    assert gains[other] == scatters[other] == 0


def test_the_same_measurements_give_the_same_model():
    at = [position(0, 0, 0), position(1, 1, 0)]
    assert (fitted([0.0, 0.1], at).at(ALL).expected() == fitted([0.0, 0.1], at).at(ALL).expected()).all()


def test_a_design_begins_with_many_changes_and_has_no_two_alike():
    levels = np.array(list(itertools.product(range(2), repeat=6)))
    chosen = levels[design(levels, [2] * 6, 5, [0])]
    assert chosen[0].sum() >= 5
    different = [int((one != other).sum()) for one, other in itertools.combinations(chosen, 2)]
    assert min(different) >= 2


def test_a_design_keeps_to_what_is_allowed_and_not_taken():
    allowed = ALL[:, 0] == 0
    found = design(ALL, COUNTS, 20, [0, 1], allowed)
    assert sorted([*found, 0, 1]) == sorted(np.flatnonzero(allowed))


# failures


def test_one_choice_that_all_failures_share_is_blamed():
    failed = ALL[[position(1, 0, 0), position(1, 1, 2)]]
    worked = ALL[[position(0, 0, 0), position(0, 1, 2), position(0, 0, 1)]]
    found = probability_of_failure(ALL, worked, failed)
    assert found[position(1, 0, 1)] > 0.8
    assert found[position(0, 1, 2)] == 0


def test_what_worked_is_not_blamed():
    """The pair is left as the cause, since each of its choices worked without the other."""
    failed = ALL[[position(1, 1, 0)]]
    worked = ALL[[position(1, 0, 0), position(0, 1, 0), position(0, 0, 1)]]
    found = probability_of_failure(ALL, worked, failed)
    assert found[position(1, 1, 1)] > 0.5
    assert found[[position(1, 0, 1), position(0, 1, 1)]] == pytest.approx(0.03, abs=0.001)  # as any that was not tried


def test_another_change_of_an_option_is_suspect_beside_what_one_failed_with():
    failed, worked = ALL[[position(0, 1, 1)]], ALL[[position(0, 1, 0), position(0, 0, 1), position(0, 0, 2)]]
    found = probability_of_failure(ALL, worked, failed)
    assert 0.3 < found[position(0, 1, 2)] < 0.5


def test_nothing_fails_as_long_as_nothing_failed():
    assert not probability_of_failure(ALL, ALL[[0]], ALL[[]]).any()


def test_a_choice_that_never_worked_may_fail_where_another_did():
    found = probability_of_failure(ALL, ALL[[position(0, 0, 0), position(0, 1, 0)]], ALL[[position(1, 0, 0)]])
    assert found[position(0, 1, 0)] == 0
    assert all(0.1 < each < 0.2 for each in found[[position(0, 0, 1), position(0, 1, 2)]])


def test_values_beyond_one_that_failed_are_likely_to_fail():
    levels = np.arange(5).reshape(-1, 1)
    scale = np.array([np.nan, 8.0, 16.0, 32.0, 64.0])
    found = probability_of_failure(levels, levels[[0, 1]], levels[[3]], [scale])
    assert found[3] == pytest.approx(1)
    assert found[1] == 0 < found[2] < found[4] < 1
    assert probability_of_failure(levels, levels[[0, 1]], levels[[3]])[2] == pytest.approx(0.1)


def test_what_exceeds_a_limit_together_is_avoided_without_being_tried():
    """Of two sizes with five values each; they fail beyond a product of 32."""
    levels = np.array(list(itertools.product(range(5), repeat=2)))
    scales = [np.array([1.0, 2.0, 4.0, 8.0, 16.0])] * 2
    worked, failed = np.array([[0, 0], [2, 2], [0, 4]]), np.array([[2, 4], [4, 2], [3, 3]])
    found = probability_of_failure(levels, worked, failed, scales).reshape(5, 5)
    assert found[4, 4] > 0.98 and found[3, 4] > 0.9
    assert found[1, 1] < 0.3 and found[1, 3] < 0.5
