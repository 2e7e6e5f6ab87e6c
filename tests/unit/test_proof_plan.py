"""What a proof rests on, through whole simulated studies: pairs that do not count, promise, noise of the search."""

from __future__ import annotations

import itertools
import random

import pytest
from made_search import choices, of

from servelab.search.simulate import Measured, simulate_project

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


def test_a_proof_of_which_too_few_pairs_count_is_disturbed(two, study_content):
    """It has `proof.most_pairs`, and no more for those that do not count."""
    numbers, measure = set(), disturbed_in(set(range(2, 20)), GAIN)

    def noted(configuration, load, start):
        numbers.add(start.rsplit("-", 1)[1])
        return measure(configuration, load, start)

    study_content["proof"] = {"most_pairs": 4}
    found = simulate_project(two(), noted)
    assert numbers == set("0123")
    assert (found.verdict, found.proof.pairs) == ("disturbed", 2)
    assert choices(found.winner) == ""


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
