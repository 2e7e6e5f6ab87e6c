"""The rules of each search strategy: the joint re-check, what a grid has, and who survives halving."""

from __future__ import annotations

import pytest
from made_search import TWO, around, choices, of

from servelab.core.errors import ConfigError
from servelab.search.options_space import product
from servelab.search.simulate import Measured, run_search
from servelab.search.strategies import stage_names
from servelab.study.configuration import baseline
from servelab.study.study import RECHECK

# staged: the joint re-check


def rechecked(two, values, **settings):
    past = run_search(two(**settings), of(values))
    assert past[-1].plan.stage == RECHECK
    return past[-1]


def test_a_choice_that_hurts_beside_a_later_one_is_dropped(two):
    recheck = rechecked(two, {"": 100, "A": 110, "AB": 130, "B": 140})
    assert [candidate.candidate for candidate in recheck.plan.candidates] == [
        "B",
        "without first: A",
        "without second: B",
    ]
    assert recheck.plan.candidates[1].changes == {"options": {"threads": None}}
    assert choices(recheck.winner.configuration) == "B"
    assert recheck.decision.changed and "the choice is dropped" in recheck.decision.reason


def test_the_recheck_applies_where_two_stages_changed_something(two):
    recheck = rechecked(two, {"": 100, "A": 110, "AB": 90, "B": 140})
    assert not recheck.plan.applies and "at least two stages" in recheck.plan.reason
    assert len(recheck.plan.candidates) == 1
    assert choices(recheck.winner.configuration) == "A"


def test_no_recheck_where_it_is_turned_off_or_there_is_one_stage(two, project_with):
    assert RECHECK not in stage_names(two(recheck=False).study)
    assert RECHECK not in stage_names(project_with(stages=TWO[:1]).study)


def test_a_choice_that_only_another_one_allows_goes_with_it(project_with, study_content):
    study_content["engines"]["vllm"] = {"version": "0.32.0"}
    project = project_with(
        stages=[
            {"name": "engine", "candidates": [{"engine": "vllm"}]},
            {"name": "eager", "when": {"engine": "vllm"}, "candidates": [{"options": {"enforce_eager": True}}]},
        ]
    )

    def measured(configuration, load, start):
        value = {"llama.cpp": 100}.get(configuration.engine, 120)
        return Measured(around(value + (20 if configuration.options else 0)))

    recheck = run_search(project, measured)[-1]
    without_engine = recheck.plan.candidates[1]
    assert without_engine.configuration == baseline(project.study).configuration


# grid


def test_the_product_takes_of_each_stage_nothing_or_one(project_with):
    variants = product(project_with("grid").study)
    assert len(variants) == 4 * 2 - 1
    assert [variant.name for variant in variants][-1] == "max_num_seqs=32 + --flash-attn=off"
    assert variants[-1].changes == {"options": {"max_num_seqs": 32}, "arguments": {"--flash-attn": "off"}}


def test_the_product_keeps_conditions_and_leaves_out_what_is_there_already(project_with):
    stages = [
        {"name": "a", "candidates": [{"options": {"max_num_seqs": 8}}]},
        {"name": "b", "when": {"options.max_num_seqs": 8}, "candidates": [{"options": {"threads": 1}}]},
        {"name": "c", "candidates": [{"options": {"max_num_seqs": 8}}, {"options": {"max_num_seqs": None}}]},
    ]
    names = [variant.name for variant in product(project_with("grid", stages=stages).study)]
    assert names == ["max_num_seqs=8", "max_num_seqs=8 + threads=1", "max_num_seqs=8 + threads=1 + max_num_seqs=none"]


def test_too_many_combinations_are_refused_before_they_are_made(project_with):
    stages = [
        {"name": f"s{number}", "candidates": [{"arguments": {f"--x{number}": value}} for value in range(9)]}
        for number in range(5)
    ]
    with pytest.raises(ConfigError, match=r"up to 100,000, more than 10,000; use `staged`"):
        project_with("grid", stages=stages)
