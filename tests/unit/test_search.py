"""Search strategies: one contract for all of them, on runs that a function makes up."""

from __future__ import annotations

import random
import re

import pytest
from made_search import TWO, around, choices, measure, of, speed

from servelab.core.errors import ConfigError
from servelab.metrics.definitions import METRICS
from servelab.metrics.tables import schemas
from servelab.search import strategies as search
from servelab.search.options_space import product
from servelab.search.proof_plan import within_budget
from servelab.search.simulate import Measured, run_search, simulate_project, tables
from servelab.search.strategies import STRATEGIES, stage_names
from servelab.study.configuration import Load, baseline
from servelab.study.study import PROOF_STAGES, RECHECK


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_stages_are_known_from_the_study_alone_and_a_plan_follows_from_those_before_it(strategy, project_with):
    project = project_with(strategy)
    names = stage_names(project.study)
    assert names == stage_names(project.study) and names[-3:] == [*PROOF_STAGES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) for name in names)
    past = run_search(project, measure)
    assert [stage.plan.stage for stage in past] == names[:-3]
    for position, stage in enumerate(past):
        assert search.plan(project, stage.plan.stage, past[:position]) == stage.plan
    assert run_search(project, measure)[-1].decision == past[-1].decision


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_the_incumbent_is_first_and_every_candidate_is_accounted_for(strategy, project_with):
    project = project_with(strategy)
    outlines = {outline.name: outline for outline in search.strategy_of(project.study).outlines(project.study)}
    tried, past = set(), run_search(project, measure)
    for stage in past:
        planned = [candidate.candidate for candidate in stage.plan.candidates]
        assert [candidate.is_incumbent for candidate in stage.plan.candidates] == [True] + [False] * (len(planned) - 1)
        assert [verdict.candidate for verdict in stage.decision.candidates] == planned
        assert len(set(planned)) == len(planned)
        outline = outlines[stage.plan.stage]
        assert set(outline.candidates) <= set(planned)
        for verdict in stage.decision.candidates:
            assert verdict.why
        tried |= {speed(candidate.configuration) for candidate in stage.plan.candidates}
    assert {110, 130, 120, 100} <= {round(value) for value in tried}
    best = past[-1].winner.configuration  # choices do not touch each other
    assert (best.options, best.arguments) == ({"max_num_seqs": 16}, {})


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_nothing_wins_where_all_is_the_same_or_fails(strategy, project_with):
    project = project_with(strategy)
    for result in (Measured(around(100.0), 1.0), Measured(failed="crashed")):
        past = run_search(project, lambda configuration, load, start, result=result: result)
        assert past[-1].winner.configuration == baseline(project.study).configuration


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_the_strategy_is_no_part_of_a_whole_runs_identity(strategy, project_with):
    """Whatever the strategy, a configuration under the whole load is the same run."""
    staged = {
        candidate.configuration.model_dump_json(): candidate.runs[0].run_id
        for stage in run_search(project_with("staged"), measure)
        for candidate in stage.plan.candidates
    }
    found = {
        candidate.configuration.model_dump_json(): candidate.runs[0].run_id
        for stage in run_search(project_with(strategy), measure)
        for candidate in stage.plan.candidates
    }
    shared = staged.keys() & found.keys()
    assert len(shared) > 1
    assert {name: staged[name] for name in shared} == {name: found[name] for name in shared}


def test_an_unknown_strategy_is_named_with_the_nearest(project_with):
    with pytest.raises(
        ConfigError, match=r"search\.strategy: unknown search strategy `stagged`; did you mean `staged`"
    ):
        project_with("stagged")


# constraints


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_what_misses_a_constraint_never_wins(strategy, project_with):
    def measured(configuration, load, start):
        missed = "tpot_ms mean must be at most 50 and is 60, 20.0 % above it"
        slow = configuration.options.get("max_num_seqs") == 16
        return Measured(around(speed(configuration)), constraints_missed=missed if slow else None)

    past = run_search(project_with(strategy, objective={"constraints": {"tpot_ms": {"mean": 50}}}), measured)
    assert past[-1].winner.configuration.options == {"max_num_seqs": 32}
    verdict = next(each for each in past[0].decision.candidates if each.candidate == "max_num_seqs=16")
    assert verdict.verdict == "constraint missed" and "20.0 % above it" in verdict.why


def test_an_incumbent_that_misses_a_constraint_is_replaced_by_one_that_keeps_it(two):
    def measured(configuration, load, start):
        return Measured(around(100), constraints_missed=None if choices(configuration) == "A" else "too slow")

    past = run_search(two(), measured)
    assert choices(past[-1].winner.configuration) == "A"
    assert past[0].decision.candidates[1].why == "the incumbent misses a constraint"


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ({"tpot": {"mean": 50}}, "unknown metric with a better direction `tpot`; did you mean"),
        ({"tpot_ms": {"p42": 50}}, "objective.constraints.tpot_ms.p42"),
        ({"tpot_ms": {}}, "names no statistic"),
        ({"slo_attainment": {"mean": 0.9}}, "slo_attainment needs limits"),
        ({"cost_per_million_tokens": {"mean": 1}}, "needs `hardware.price_per_accelerator_hour`"),
    ],
)
def test_a_wrong_constraint_is_one_clear_line(project_with, constraints, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        project_with(objective={"constraints": constraints})


# objectives


@pytest.mark.parametrize("strategy", STRATEGIES.names())
@pytest.mark.parametrize("metric", ["e2el_ms", "cost_per_million_tokens", "energy_per_token_j"])
def test_less_is_better_for_times_costs_and_energy(strategy, metric, project_with, study_content):
    study_content["hardware"]["price_per_accelerator_hour"] = 2.5
    project = project_with(strategy, objective={"metric": metric})

    def measured(configuration, load, start):
        return Measured([1e4 / value for value in around(speed(configuration))])

    assert METRICS.get(metric).higher_is_better is False
    assert run_search(project, measured)[-1].winner.configuration.options == {"max_num_seqs": 16}


def test_simulated_tables_have_the_columns_of_real_ones(project_with):
    project = project_with()
    plan = search.plan(project, "sequences", [])
    known = {run: measure(plan.candidates[0].configuration, Load(workload="cpu-sharegpt")) for run in plan.run_ids()}
    assert set(tables(project.study, plan, known)) <= set(schemas.STAGE_TABLE.names)


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


# a budget


@pytest.mark.parametrize(("hours", "left_out", "pairs"), [(3.0, 0, 8), (1.75, 0, 5), (1.25, 1, 3), (0.1, 1, 3)])
def test_a_budget_is_for_search_and_proof_together(study_content, project_with, hours, left_out, pairs):
    """Runs take 0.1 hours: five starts that are always measured, two more, six of the first pairs, two a pair."""
    study_content |= {"budget": {"accelerator_hours": hours}, "workloads": ["cpu-sharegpt"]}
    project, draw = project_with(recheck=False), random.Random(1)

    def noisy(configuration, load, start):
        noise = draw.gauss(1, 0.2) if start.startswith("proof") else 1.0
        return Measured([speed(configuration) * noise], accelerator_s=360.0)

    past = run_search(project, noisy)
    assert sum(candidate.not_run is not None for candidate in past[-1].plan.candidates) == left_out
    # seven starts of the search, or six; the rest is for pairs of two
    assert within_budget(project.study, past).proof.most_pairs == pairs
    found = simulate_project(project, noisy)
    assert found.proof.pairs == pairs
    assert found.accelerator_s <= max(hours, 1.2) * 3600 + 1


def test_what_was_left_out_says_why(study_content, project_with):
    """The first stage takes 0.5 hours, the first pairs of the proof would take 0.6."""
    study_content |= {"budget": {"accelerator_hours": 1.15}, "workloads": ["cpu-sharegpt"]}
    past = run_search(project_with(), measure)
    left_out, verdict = past[1].plan.candidates[1], past[1].decision.candidates[1]
    assert left_out.runs == [] and (verdict.verdict, verdict.why) == ("not run", left_out.not_run)
    assert "0.5 are spent, and this run would take about 0.1, but 0.05 are left besides" in left_out.not_run


def test_an_adaptive_search_ends_where_the_budget_left_out_a_candidate(study_content, project_with):
    study_content |= {"budget": {"accelerator_hours": 1.0}, "workloads": ["cpu-sharegpt"]}
    plans = [each.plan for each in run_search(project_with("adaptive", visits=7), measure)]
    assert sum(candidate.not_run is not None for plan in plans for candidate in plan.candidates) == 1
    assert plans[-1].reason == "the budget is used"
