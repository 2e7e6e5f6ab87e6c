"""The rules of the adaptive search: what it measures, when it ends, what it avoids, and what it chooses."""

import itertools
import math
import random

import pytest
from made_search import around

from servelab.search.options_space import space_of
from servelab.search.simulate import Measured, run_search
from servelab.search.strategies.adaptive import visits_of
from servelab.study.configuration import baseline

NAMES = ("a", "b", "c", "d", "e", "f")


def stage(name, count=1, **more):
    """A stage whose candidates set an argument of the engine to 1 … `count`."""
    return {
        "name": name,
        "candidates": [
            {"label": f"{name}{value}", "arguments": {f"--option-{name}": value}} for value in range(1, count + 1)
        ],
        **more,
    }


def chosen(configuration):
    """The values of the options that a configuration sets."""
    return {
        name: configuration.arguments[f"--option-{name}"]
        for name in NAMES
        if f"--option-{name}" in configuration.arguments
    }


@pytest.fixture
def six(project_with):
    """A study of six options of one candidate each: 64 combinations."""

    def make(stages=None, **settings):
        return project_with("adaptive", stages=stages or [stage(name) for name in NAMES], **settings)

    return make


def searched(project, truth, **more):
    """The stages of a search; `truth` gives the value of what is chosen, or why it fails. And what was measured."""
    measured = []

    def measure(configuration, load, start):
        measured.append(chosen(configuration))
        value = truth(measured[-1])
        return Measured(failed=value) if isinstance(value, str) else Measured(around(value, 0.001), 60.0, **more)

    return run_search(project, measure), measured


def together(options):
    return (140.0 if {"b", "e"} <= options.keys() else 100.0) - 4 * len(options)


def test_options_that_only_help_together_are_found(six):
    project = six()
    past, measured = searched(project, together)
    assert chosen(past[-1].winner.configuration).keys() == {"b", "e"}
    assert len(measured) <= visits_of(project.study) == 24


def test_nothing_is_measured_twice_and_the_plan_keeps_what_was_measured(six):
    past, measured = searched(six(), together)
    assert len({tuple(sorted(options)) for options in measured}) == len(measured)
    for before, after in itertools.pairwise(stage.plan for stage in past if stage.plan.applies):
        assert set(before.run_ids()) < set(after.run_ids())


def test_each_choice_is_measured_though_the_others_change_nothing(six):
    _, measured = searched(six([stage("a", 9), stage("b"), stage("c")]), lambda options: 100.0)
    assert {options.get("a") for options in measured} == {None, *range(1, 10)}


def test_a_choice_that_starts_only_beside_another_is_found(six):
    """a fails alone and beside c1, and gains 40 % beside c2, which loses alone."""

    def truth(options):
        without = 100.0 - 8 * (options.get("c") == 2) + 2 * len(options)
        return without if "a" not in options else 140.0 if options.get("c") == 2 else "crashed"

    past, _ = searched(six([stage("a"), stage("b"), stage("c", 2), stage("d", 3)]), truth)
    assert "a" in chosen(past[-1].winner.configuration)


def test_what_failed_in_company_is_tried_in_time_to_be_combined(six):
    """d1 gains most and crashes beside a, which helps; b always crashes. Nothing else is as good as d1."""
    gains = {"a": [0.083], "b": [0], "c": [-0.082, 0], "d": [0.469, 0.007, -0.08]}

    def truth(options):
        if "b" in options or ("a" in options and options.get("d") == 1):
            return "crashed"
        return 100.0 * math.exp(sum(gains[name][value - 1] for name, value in options.items()))

    _, measured = searched(six([stage("a"), stage("b"), stage("c", 2), stage("d", 3)]), truth)
    first = next(at for at, each in enumerate(measured) if each.get("d") == 1 and truth(each) != "crashed")
    assert len(measured) - first > 3


@pytest.mark.parametrize("best", [("c", 1), ("c", 2), ("d", 1), ("d", 2), ("d", 3)])
@pytest.mark.parametrize("beside", ["a", "b"])
def test_no_choice_is_given_up_before_it_worked_or_failed_alone(six, best, beside):
    """One gains most and crashes beside a change that helps, so that what promises most has both."""
    name, value = best

    def truth(options):
        if options.get(name) == value and beside in options:
            return "crashed"
        return 100.0 * (1.6 if options.get(name) == value else 1.0) * (1.04 if beside in options else 1.0)

    past, _ = searched(six([stage("a"), stage("b"), stage("c", 2), stage("d", 3)]), truth)
    assert chosen(past[-1].winner.configuration).get(name) == value


def test_neighbours_on_a_scale_inform_each_other(six):
    """Nine sizes with a peak between: it is found without measuring them all."""
    project = six([stage("a", 9), stage("b"), stage("c")])
    past, measured = searched(project, lambda options: 100.0 * 1.3 ** -abs(options.get("a", 1) - 6))
    assert chosen(past[-1].winner.configuration)["a"] == 6
    assert len(measured) <= 18 < 40


def test_of_slow_sizes_only_the_nearest_is_tried_alone(six):
    project = six([stage("a", 5), *(stage(name) for name in "bcd")])
    _, measured = searched(project, lambda options: 100.0 * 0.8 ** options.get("a", 0))
    assert [options["a"] for options in measured if list(options) == ["a"]] == [1]


def test_it_ends_when_nothing_promises_more(six):
    past, measured = searched(six(visits=40), lambda options: 100.0)
    reasons = [stage.plan.reason for stage in past if not stage.plan.applies]
    assert "promises more than the margin over" in reasons[0] and len(set(reasons)) == 1
    assert len(measured) <= 30
    assert past[-1].winner.configuration == baseline(six().study).configuration


def test_what_cannot_be_told_from_the_best_is_started_once_more(six):
    draw = random.Random(3)
    past, measured = searched(six(), lambda options: 100 * (1 + 0.3 * ("a" in options)) * draw.gauss(1, 0.03))
    again = [options for options in measured if measured.count(options) > 1]
    assert again and all("a" in options for options in again)
    assert len(measured) <= 0.45 * 64
    assert any("another start of those" in each.plan.title for each in past if each.plan.applies)


def test_the_visits_may_be_set(six):
    past, measured = searched(six(visits=8, batch=2), lambda options: 100.0 * 1.2 ** len(options))
    assert len(measured) == 8
    assert [stage.plan.stage for stage in past] == ["design", "refine-1", "refine-2", "refine-3", "refine-4"]
    assert all(len(options) == 1 for options in searched(six(visits=10), together)[1][1:7])


def test_a_choice_that_crashes_is_avoided(six):
    past, measured = searched(six(), lambda options: "crashed" if "c" in options else 100.0 * 1.1 ** len(options))
    crashed = ["c" in options for options in measured]
    assert any(crashed[:4]) and sum(crashed) <= 6
    assert chosen(past[-1].winner.configuration).keys() == set("abdef")


def test_a_gain_within_the_margin_keeps_the_baseline(six):
    project = six(objective={"margin_percent": 20})
    past, _ = searched(project, lambda options: 100.0 * 1.02 ** len(options))
    assert past[-1].winner.configuration == baseline(project.study).configuration


def test_of_equals_the_one_that_changes_least_wins(six):
    speeds = {"": 100.0, "a": 120.0, "b": 100.0, "ab": 119.7}  # the model expects a little more of both
    past, measured = searched(six([stage("a"), stage("b")]), lambda options: speeds["".join(options)])
    assert len(measured) == 4 and chosen(past[-1].winner.configuration) == {"a": 1}


def test_if_all_fails_the_baseline_stays(six):
    past, measured = searched(six(), lambda options: "crashed")
    assert past[-1].winner.configuration == baseline(six().study).configuration
    assert len(measured) <= visits_of(six().study)


def test_a_baseline_that_fails_is_replaced(six):
    past, _ = searched(six(), lambda options: 100.0 * 1.1 ** len(options) if options else "out_of_memory")
    assert chosen(past[-1].winner.configuration).keys() == set(NAMES)


def test_what_misses_a_constraint_does_not_win_though_it_is_fast(six):
    project = six(objective={"constraints": {"tpot_ms": {"mean": 50}}})

    def measure(configuration, load, start):
        options = chosen(configuration)
        return Measured(
            around(100 * 1.1 ** len(options)), constraints_missed="tpot_ms is too high" if "a" in options else None
        )

    assert chosen(run_search(project, measure)[-1].winner.configuration).keys() == set("bcdef")


def test_a_stage_applies_where_its_condition_holds(six):
    """Option f is there only with an a of the shared vocabulary: no combination has f alone."""
    stages = [
        {"name": "a", "candidates": [{"label": "a", "options": {"max_num_seqs": 8}}]},
        *(stage(name) for name in "bcde"),
        stage("f", when={"options.max_num_seqs": 8}),
    ]
    project = six(stages)
    assert len(space_of(project.study)) == 48
    past, _ = searched(project, lambda options: 100.0 * 1.1 ** len(options))
    for candidate in past[-1].plan.candidates:
        assert "f" not in chosen(candidate.configuration) or candidate.configuration.options["max_num_seqs"] == 8


def test_what_an_engine_refuses_costs_nothing(six, study_content):
    """It is listed with the reason, and other combinations take its place."""
    study_content["engines"]["vllm"] = {"version": "0.32.0"}  # has the option that the baseline's engine lacks
    refused = {"name": "b", "candidates": [{"label": "b", "options": {"expert_parallel": True}}]}
    project = six([stage("a"), refused, *map(stage, "cdef")])
    past, measured = searched(project, lambda options: 100.0 * 1.1 ** len(options))
    design = past[0].plan.candidates
    assert any("expert_parallel" in (candidate.refused or "") for candidate in design)
    assert sum(candidate.refused is None for candidate in design) == 2
    assert sum(candidate.refused is not None for candidate in past[-1].plan.candidates) <= 4
    assert chosen(past[-1].winner.configuration).keys() == set("acdef") and len(measured) <= 16
