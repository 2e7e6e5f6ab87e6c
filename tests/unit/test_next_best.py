"""A winner that turns out in its proof to change answers is not recommended; the next best is proved instead."""

import pytest
from made_study import demo_study

from servelab.search.simulate import Measured, simulate_project
from servelab.study.configuration import baseline, key_of

BROKEN, SOUND, SLOWER = 16, 8, 2
SPEEDS = {BROKEN: 160.0, SOUND: 130.0, SLOWER: 80.0}
NO_RECHECK = {"search": {"strategy": "staged", "recheck": False}, "answers": {"num_questions": 40}}


def sequences(*counts):
    return {"name": "sequences", "candidates": [{"options": {"max_num_seqs": count}} for count in counts]}


BATCH = {"name": "batch", "candidates": [{"arguments": {"--ubatch-size": 64}}]}
WEIGHTS = {"name": "weights", "candidates": [{"model": "q8_0"}]}


@pytest.fixture
def study_of(make_project):
    def make(*stages, **changes):
        return make_project(demo_study() | NO_RECHECK | {"stages": list(stages)} | changes)

    return make


def machine(broken=lambda configuration, start: False, extra=lambda configuration: 1.0):
    """A machine without much noise, whose speed is that of `max_num_seqs`, and how often it was asked what."""

    def measure(configuration, load, start):
        measured.append((key_of(configuration), start))
        speed = SPEEDS.get(configuration.options.get("max_num_seqs"), 100.0) * extra(configuration)
        wobble = 1 + 0.001 * (len(measured) % 3)
        lost = "0 of 40 questions right against 30" if broken(configuration, start) else None
        return Measured(rounds=[speed * wobble] * 3, accelerator_s=60.0, changes_answers=lost)

    measured = []
    measure.measured = measured
    return measure


def sequences_of(configuration):
    return configuration.options.get("max_num_seqs")


def test_a_winner_that_nobody_asked_before_its_proof_makes_way_for_the_next_best(study_of):
    project = study_of(sequences(BROKEN, SOUND, SLOWER))
    measure = machine(lambda configuration, start: sequences_of(configuration) == BROKEN)
    found = simulate_project(project, measure)
    assert sequences_of(found.winner) == SOUND and found.verdict == "better"
    assert found.proof.promised_change_percent == pytest.approx(30, abs=1)
    assert found.change.value == pytest.approx(30, abs=1)
    starts = {key_of(found.winner): set(), key_of(baseline(project.study).configuration): set()}
    for key, start in measure.measured:
        if start.startswith("proof-"):
            starts.setdefault(key, set()).add(start)
    proof = project.study.proof
    assert sum(len(of) for of in starts.values()) <= 2 * proof.most_pairs  # both proofs together are within the bound
    assert starts[key_of(found.winner)] <= starts[key_of(baseline(project.study).configuration)]


def test_without_a_loss_the_fastest_is_proved(study_of):
    found = simulate_project(study_of(sequences(BROKEN, SOUND)), machine())
    assert sequences_of(found.winner) == BROKEN and found.verdict == "better"


def test_what_has_the_same_untested_setting_is_not_the_next_best(study_of):
    """Everything of the second stage has the first one's choice, and only another of the first is without it."""
    project = study_of(sequences(BROKEN, SOUND), BATCH)
    measure = machine(
        lambda configuration, start: sequences_of(configuration) == BROKEN,
        lambda configuration: 1.2 if configuration.arguments.get("--ubatch-size") == 64 else 1.0,
    )
    found = simulate_project(project, measure)
    assert (
        sequences_of(found.winner) == SOUND
        and found.winner.arguments == baseline(project.study).configuration.arguments
    )
    assert found.verdict == "better"


def test_one_that_was_asked_itself_may_be_the_next_best_with_the_same_weights(study_of):
    """The loser was asked too, and its loss was not seen before the proof."""
    project = study_of(WEIGHTS, BATCH)
    measure = machine(
        lambda configuration, start: "--ubatch-size" in configuration.arguments and start.startswith("proof-"),
        lambda configuration: (
            (1.2 if "--ubatch-size" in configuration.arguments else 1.0) * (1.3 if configuration.model == "q8_0" else 1)
        ),
    )
    found = simulate_project(project, measure)
    assert found.winner.model == "q8_0" and "--ubatch-size" not in found.winner.arguments
    assert found.verdict == "better"


@pytest.mark.parametrize(
    ("stages", "changes", "why"),
    [
        ([sequences(BROKEN)], {}, "nothing else was measured"),
        ([sequences(BROKEN, SLOWER)], {}, "the other is slower than the baseline"),
        ([sequences(BROKEN, SOUND)], {"proof": {"pairs": 3, "most_pairs": 4}}, "one pair has no interval"),
    ],
)
def test_the_baseline_is_kept_if_there_is_no_next_best(study_of, stages, changes, why):
    project = study_of(*stages, **changes)
    found = simulate_project(project, machine(lambda configuration, start: sequences_of(configuration) == BROKEN))
    assert key_of(found.winner) == key_of(baseline(project.study).configuration), why
    assert found.verdict == "failed" and "changes answers" in found.proof.why
