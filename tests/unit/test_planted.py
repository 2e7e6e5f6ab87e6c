"""Planted truths, searched through the real plans and decisions on drawn measurements, many times over.

An interaction: two options that are each good and together worse than one of them. A gain that is none: options that
change nothing, of which noise makes some look better.
"""

import numpy as np
import pytest

from servelab.search.simulate import Measured, run_search, simulate_project
from servelab.search.strategies import STRATEGIES

ROUNDS = 6
A = {"name": "a", "candidates": [{"label": "a", "options": {"max_num_seqs": 8}}]}
B = {"name": "b", "candidates": [{"label": "b", "arguments": {"--flash-attn": "off"}}]}
C = {"name": "c", "candidates": [{"label": "c", "arguments": {"--ubatch-size": 64}}]}


def chosen(configuration):
    """Labels of the options that a configuration has."""
    names = {"a": configuration.options, "b": configuration.arguments, "c": configuration.arguments}
    keys = {"a": "max_num_seqs", "b": "--flash-attn", "c": "--ubatch-size"}
    return frozenset(label for label, held in names.items() if keys[label] in held)


@pytest.fixture(params=[20, pytest.param(200, marks=pytest.mark.slow)], ids="{} searches".format)
def seeds(request):
    """So many searches, each with a seed of its own."""
    return range(request.param)


@pytest.fixture
def winners(study_content, make_project, seeds):
    """What was chosen with each seed: `truth` gives the mean of a set of options, noise is in percent a round.

    Chosen by the search, or recommended after the proof.
    """

    def run(truth, noise_percent, strategy="staged", stages=(A, B, C), recheck=True, proved=False):
        study_content["stages"] = list(stages)
        study_content["search"] = {"strategy": strategy, "recheck": recheck}
        project = make_project(study_content)
        found = []
        for seed in seeds:
            draw = np.random.default_rng(seed)

            def measure(configuration, load, start, draw=draw):
                mean = truth(chosen(configuration))
                return Measured(rounds=list(mean * (1 + draw.normal(0, noise_percent / 100, ROUNDS))))

            if proved:
                found.append(chosen(simulate_project(project, measure).winner))
            else:
                found.append(chosen(run_search(project, measure)[-1].winner.configuration))
        return found

    return run


def said(found):
    """Counts of the sets that were chosen, for a message."""
    sets = sorted(set(found), key=lambda each: -found.count(each))
    return ", ".join(f"{'+'.join(sorted(each)) or 'baseline'}: {found.count(each)}" for each in sets)


INTERACTION = {"": 100.0, "a": 115.0, "b": 135.0, "ab": 125.0}
"""Each is good alone; beside b, a only harms. Stage by stage a comes first, and b then gains on it."""


def interaction(options):
    return INTERACTION["".join(sorted(options & {"a", "b"}))]


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_an_option_that_harms_beside_a_later_one_is_dropped(winners, strategy):
    found = winners(interaction, noise_percent=2, strategy=strategy, stages=(A, B))
    assert found.count(frozenset("b")) >= 0.95 * len(found), said(found)


def test_without_the_joint_recheck_it_stays(winners):
    """What the re-check is there for: the search that leaves it out ends with both."""
    found = winners(interaction, noise_percent=2, stages=(A, B), recheck=False)
    assert found.count(frozenset("ab")) >= 0.95 * len(found), said(found)


def test_a_harmful_option_among_others_is_dropped_alone(winners):
    """A third choice that helps whatever the others are stays."""
    found = winners(
        lambda options: interaction(options) * (1.15 if "c" in options else 1), noise_percent=2, stages=(A, C, B)
    )
    assert found.count(frozenset("bc")) >= 0.95 * len(found), said(found)


def test_choices_that_all_help_are_kept(winners):
    found = winners(lambda options: 100 * 1.15 ** len(options), noise_percent=2)
    assert found.count(frozenset("abc")) >= 0.95 * len(found), said(found)


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_a_gain_that_is_noise_is_not_promoted(winners, strategy):
    """Options that change nothing: seven combinations, of which any might look better than the baseline."""
    found = winners(lambda options: 100.0, 4, strategy, proved=True)
    assert len(found) - found.count(frozenset()) <= 0.05 * len(found), said(found)


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_noise_does_not_join_a_gain_that_is_real(winners, strategy):
    found = winners(lambda options: 130.0 if "a" in options else 100.0, 2, strategy)
    assert all("a" in options for options in found), said(found)
    if strategy != "adaptive":  # it takes what it expects to be best, were it by little
        assert found.count(frozenset("a")) >= 0.9 * len(found), said(found)
