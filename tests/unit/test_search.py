"""Search strategies: one contract for all of them, and the rules of each, on runs that a function makes up."""

from __future__ import annotations

import re

import pytest

from servelab import schemas, search
from servelab.deciding_pair import choose_pair
from servelab.errors import ConfigError
from servelab.metrics import METRICS
from servelab.plan import Load, baseline
from servelab.search import STRATEGIES, stage_names
from servelab.search.product import product
from servelab.search.simulate import Measured, run_search, tables
from servelab.search.stopping import spent_s
from servelab.study import COMPARISON, RECHECK

SPEEDS = {8: 1.1, 16: 1.3, 32: 1.2}
"""How much faster so many sequences at once are."""


def choices(configuration):
    """Which of stages `first` and `second` of a study of two options are chosen: `A`, `B`, `AB` or nothing."""
    return "".join(
        name for name, option in (("A", "threads"), ("B", "max_num_seqs")) if option in configuration.options
    )


def speed(configuration):
    off = configuration.arguments.get("--flash-attn") == "off"
    return 100 * SPEEDS.get(configuration.options.get("max_num_seqs"), 1.0) * (0.9 if off else 1.0)


def around(value, noise=0.01):
    return [value, value * (1 + noise), value * (1 - noise)]


def measure(configuration, load):
    return Measured(rounds=around(speed(configuration)), accelerator_s=360.0 / load.divisor)


def of(values, noise=0.001):
    """Measures a study of two options by a table: choices → tokens/s, or why it fails."""

    def measured(configuration, load):
        value = values[choices(configuration)]
        return (
            Measured(failed=value) if isinstance(value, str) else Measured(around(value, noise), 360.0 / load.divisor)
        )

    return measured


@pytest.fixture
def project_with(study_content, make_project):
    """The study of the tests with another `search`, and what else is to be changed."""

    def make(strategy="staged", objective=None, stages=None, **settings):
        study_content["search"] = {"strategy": strategy, **settings}
        study_content["objective"] |= objective or {}
        study_content["stages"] = stages or study_content["stages"]
        return make_project(study_content)

    return make


TWO = [
    {"name": "first", "candidates": [{"label": "A", "options": {"threads": 1}}]},
    {"name": "second", "candidates": [{"label": "B", "options": {"max_num_seqs": 8}}]},
]


@pytest.fixture
def two(project_with):
    """A study of two stages of one candidate each, `A` and `B`."""

    def make(**settings):
        return project_with(stages=[dict(stage) for stage in TWO], **settings)

    return make


# what every strategy must keep


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_stages_are_known_from_the_study_alone(strategy, project_with):
    project = project_with(strategy)
    names = project.stage_names
    assert names == stage_names(project.study) and names[-1] == COMPARISON
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) for name in names)
    assert [stage.plan.stage for stage in run_search(project, measure)] == names[:-1]


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_a_plan_follows_from_the_stages_before_it(strategy, project_with):
    project = project_with(strategy)
    past = run_search(project, measure)
    for position, stage in enumerate(past):
        assert search.plan(project, stage.plan.stage, past[:position]) == stage.plan
    assert run_search(project, measure)[-1].decision == past[-1].decision


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_the_incumbent_is_first_and_every_candidate_is_accounted_for(strategy, project_with):
    project = project_with(strategy)
    outlines = {outline.name: outline for outline in search.strategy_of(project.study).outlines(project.study)}
    tried = set()
    for stage in run_search(project, measure):
        planned = [candidate.candidate for candidate in stage.plan.candidates]
        assert [candidate.is_incumbent for candidate in stage.plan.candidates] == [True] + [False] * (len(planned) - 1)
        assert [verdict.candidate for verdict in stage.decision.candidates] == planned
        assert len(set(planned)) == len(planned)
        outline = outlines[stage.plan.stage]
        assert len(stage.plan.run_ids()) <= outline.most_runs
        assert set(outline.candidates) <= set(planned)
        for verdict in stage.decision.candidates:
            assert verdict.why
        tried |= {speed(candidate.configuration) for candidate in stage.plan.candidates}
    assert {110, 130, 120, 100} <= {round(value) for value in tried}


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_the_best_is_found_where_choices_do_not_touch_each_other(strategy, project_with):
    winner = run_search(project_with(strategy), measure)[-1].winner
    assert winner.configuration.options == {"max_num_seqs": 16}
    assert winner.configuration.arguments == {}


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_nothing_wins_where_all_is_the_same_or_fails(strategy, project_with):
    project = project_with(strategy)
    for result in (Measured(around(100.0), 1.0), Measured(failed="crashed")):
        past = run_search(project, lambda configuration, load, result=result: result)
        assert past[-1].winner.configuration == baseline(project).configuration


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_the_stage_that_decides_may_measure_its_leader_again(strategy, project_with):
    project = project_with(strategy, objective={"interleaved_cycles": 2})
    pairs = []
    for stage in run_search(project, measure):
        planned = choose_pair(project.study, stage.plan, stage.decision)
        if planned.pair:
            assert planned.pair.a.protocol == project.study.protocol
            pairs.append(planned.candidate)
    assert pairs == ["max_num_seqs=16"]


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
        if stage.plan.load_divisor == 1
        for candidate in stage.plan.candidates
    }
    shared = staged.keys() & found.keys()
    assert len(shared) > 1
    assert {name: staged[name] for name in shared} == {name: found[name] for name in shared}


def test_an_unknown_strategy_is_named_with_the_nearest(project_with):
    with pytest.raises(
        ConfigError, match=r"search\.strategy: unknown search strategy `halfing`; did you mean `halving`"
    ):
        project_with("halfing")


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


def test_a_choice_that_gives_nothing_any_more_is_dropped(two):
    recheck = rechecked(two, {"": 100, "A": 110, "AB": 130, "B": 130.4}, objective={"margin_percent": 3})
    assert choices(recheck.winner.configuration) == "B"
    verdict = recheck.decision.candidates[1]
    assert verdict.verdict == "winner" and "nothing is lost without it" in verdict.why
    assert verdict.change_percent == pytest.approx(0.3, abs=0.05)


def test_choices_that_help_stay(two):
    recheck = rechecked(two, {"": 100, "A": 110, "AB": 150, "B": 140})
    assert not recheck.decision.changed
    assert recheck.decision.reason == "every stage's choice still helps"
    assert choices(recheck.winner.configuration) == "AB"


def test_a_choice_that_cannot_be_turned_back_stays(two):
    recheck = rechecked(two, {"": 100, "A": 110, "AB": 150, "B": "out_of_memory"})
    assert choices(recheck.winner.configuration) == "AB"
    assert recheck.decision.candidates[1].verdict == "failed"


def test_the_recheck_costs_a_run_less_than_there_are_choices(two):
    past = run_search(two(), of({"": 100, "A": 110, "AB": 150, "B": 140}))
    before = {run for stage in past[:-1] for run in stage.plan.run_ids()}
    assert len(set(past[-1].plan.run_ids()) - before) == 1


def test_the_recheck_applies_where_two_stages_changed_something(two):
    recheck = rechecked(two, {"": 100, "A": 110, "AB": 90, "B": 140})
    assert not recheck.plan.applies and "at least two stages" in recheck.plan.reason
    assert len(recheck.plan.candidates) == 1
    assert choices(recheck.winner.configuration) == "A"


def test_no_recheck_where_it_is_turned_off_or_there_is_one_stage(two, project_with):
    assert RECHECK not in two(recheck=False).stage_names
    assert RECHECK not in project_with(stages=TWO[:1]).stage_names


def test_a_choice_that_only_another_one_allows_goes_with_it(project_with, study_content):
    study_content["engines"]["vllm"] = {"version": "0.32.0"}
    project = project_with(
        stages=[
            {"name": "engine", "candidates": [{"engine": "vllm"}]},
            {"name": "eager", "when": {"engine": "vllm"}, "candidates": [{"options": {"enforce_eager": True}}]},
        ]
    )

    def measured(configuration, load):
        value = {"llama.cpp": 100}.get(configuration.engine, 120)
        return Measured(around(value + (20 if configuration.options else 0)))

    recheck = run_search(project, measured)[-1]
    without_engine = recheck.plan.candidates[1]
    assert without_engine.configuration == baseline(project).configuration


def test_a_pair_is_measured_for_a_choice_that_would_be_dropped_for_nothing(two):
    project = two(objective={"interleaved_cycles": 2, "margin_percent": 3})
    recheck = run_search(project, of({"": 100, "A": 110, "AB": 130, "B": 130.4}))[-1]
    assert choose_pair(project.study, recheck.plan, recheck.decision).candidate == "without first: A"


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


def test_labels_that_stand_twice_name_their_stages(project_with):
    stages = [
        {"name": name, "candidates": [{"label": "on", "options": {option: 8}}]}
        for name, option in (("a", "max_num_seqs"), ("b", "threads"))
    ]
    names = [variant.name for variant in product(project_with("grid", stages=stages).study)]
    assert names == ["a: on", "b: on", "on + on"]


def test_too_many_combinations_are_refused_before_they_are_made(project_with):
    stages = [
        {"name": f"s{number}", "candidates": [{"arguments": {f"--x{number}": value}} for value in range(9)]}
        for number in range(5)
    ]
    with pytest.raises(ConfigError, match=r"up to 100,000, more than 10,000; take `staged`"):
        project_with("grid", stages=stages)


# halving


def test_short_loads_are_runs_of_their_own(project_with):
    project = project_with("halving", eta=4, rungs=3)
    past = run_search(project, measure)
    whole = project.workload_spec("cpu-sharegpt").parameters["num_requests"]
    loads = [stage.plan.candidates[0].runs[0] for stage in past]
    assert [stage.plan.load_divisor for stage in past] == [16, 4, 1]
    assert [run.workload for run in loads] == ["cpu-sharegpt-1of16", "cpu-sharegpt-1of4", "cpu-sharegpt"]
    assert [run.spec.workload.parameters["num_requests"] for run in loads] == [4, 4, whole]
    assert [run.spec.protocol.rounds.max for run in loads] == [2, 2, project.study.protocol.rounds.max]
    assert len({run.run_id for run in loads[1:]}) == 2
    assert {load.name for load in project.loads} >= {run.workload for run in loads}


def test_one_in_eta_survives_and_the_baseline_always_goes_on(project_with):
    project = project_with("halving", eta=2, rungs=3)
    past = run_search(project, lambda configuration, load: Measured(around(speed(configuration), 0.001)))
    assert [len(stage.plan.candidates) for stage in past] == [1 + 7, 1 + 4, 1 + 2]
    assert all(stage.plan.candidates[0].candidate == "baseline" for stage in past)
    assert past[0].decision.survivors[0] == "max_num_seqs=16"
    assert "the best 4 of 7" in past[0].decision.reason
    words = {verdict.verdict for verdict in past[0].decision.candidates}
    assert words == {"incumbent", "survives", "dropped"}
    assert past[-1].decision.candidates[1].verdict == "winner"


def test_who_cannot_be_told_from_the_last_survivor_survives_too(project_with):
    project = project_with("halving", eta=4, rungs=2)
    quiet = run_search(project, lambda c, load: Measured(around(speed(c), 0.001)))
    noisy = run_search(project, lambda c, load: Measured(around(speed(c), 0.05)))
    assert len(quiet[0].decision.survivors) == 2 < len(noisy[0].decision.survivors)
    assert "cannot be told from the last of them" in noisy[0].decision.reason


def test_what_failed_under_a_short_load_does_not_go_on(project_with):
    def measured(configuration, load):
        if configuration.options.get("max_num_seqs") == 16:
            return Measured(failed="out_of_memory")
        return measure(configuration, load)

    past = run_search(project_with("halving"), measured)
    assert not any("16" in name for name in past[0].decision.survivors)
    assert past[-1].winner.configuration.options == {"max_num_seqs": 32}


def test_where_all_failed_the_baseline_goes_on_alone(project_with):
    past = run_search(project_with("halving"), lambda configuration, load: Measured(failed="crashed"))
    assert [len(stage.plan.candidates) for stage in past] == [8, 1, 1]


def test_halving_takes_a_part_of_the_grids_time(project_with):
    grid, halving = (
        sum(spent_s(run_search(project_with(strategy), measure)).values()) for strategy in ("grid", "halving")
    )
    assert halving < 0.7 * grid


# stop_when


def test_a_budget_leaves_out_what_it_does_not_reach_for(project_with):
    """Runs take 0.1 hours: baseline and three candidates, and then half of one is left."""
    project = project_with(stop_when={"accelerator_hours": 0.45})
    past = run_search(project, measure)
    left_out = past[1].plan.candidates[1]
    assert left_out.runs == [] and "0.4 are spent" in left_out.not_run and "0.1 of the 0.05 left" in left_out.not_run
    verdict = past[1].decision.candidates[1]
    assert (verdict.verdict, verdict.why) == ("not run", left_out.not_run)
    comparison = search.plan(project, COMPARISON, past)
    assert [candidate.candidate for candidate in comparison.candidates] == ["baseline", "winner"]
    assert all(candidate.runs for candidate in comparison.candidates)


def test_a_budget_that_is_enough_leaves_out_nothing(project_with):
    past = run_search(project_with(stop_when={"accelerator_hours": 0.55}), measure)
    assert all(candidate.not_run is None for stage in past for candidate in stage.plan.candidates)


def test_what_was_measured_before_is_in_no_budget(two):
    """The re-check's last choice turned back was measured; the other one was not."""
    past = run_search(two(stop_when={"accelerator_hours": 0.35}), of({"": 100, "A": 110, "AB": 150, "B": 140}))
    assert [candidate.not_run is None for candidate in past[-1].plan.candidates] == [True, False, True]


def test_a_budget_thins_out_longer_loads_in_proportion(project_with):
    spent = {}
    for hours in (None, 0.3):
        project = project_with("halving", eta=2, rungs=3, stop_when={"accelerator_hours": hours} if hours else {})
        past = run_search(project, measure)
        spent[hours] = sum(spent_s(past).values()) / 3600
        assert past[-1].plan.candidates[0].runs
    assert spent[0.3] <= 0.3 + 0.1 < spent[None]  # the incumbent's run is never left out


def test_no_further_stage_once_the_objective_is_reached(project_with):
    past = run_search(project_with(stop_when={"objective_reached": 125}), measure)
    assert past[0].winner.candidate == "max_num_seqs=16"
    assert (
        not past[1].plan.applies and past[1].plan.reason == "the incumbent's total_tokens_per_s is 130, 125 was wanted"
    )
    assert [stage.plan.run_ids() for stage in past[1:]] == [past[0].plan.run_ids()[2:3]] * 2
    assert run_search(project_with(stop_when={"objective_reached": 135}), measure)[1].plan.applies


def test_no_further_stage_once_enough_requests_keep_the_slos(project_with):
    def measured(configuration, load):
        return Measured(around(speed(configuration)), slo_attainment=0.97)

    reached = {"objective": {"slos": {"ttft_ms": 500}}}
    past = run_search(project_with(stop_when={"slo_reached": 0.95}, **reached), measured)
    assert "97 % of the incumbent's requests keep the SLOs" in past[1].plan.reason
    assert run_search(project_with(stop_when={"slo_reached": 0.99}, **reached), measured)[1].plan.applies


@pytest.mark.parametrize(
    ("strategy", "stop_when", "message"),
    [
        ("grid", {"accelerator_hours": 1}, "`grid` cannot be ended by it; leave it out, or take halving or staged"),
        ("halving", {"objective_reached": 1}, "`halving` cannot be ended by it; leave it out, or take staged"),
        ("staged", {"slo_reached": 0.9}, "needs limits; add `objective.slos`"),
        ("staged", {"accelerator_hour": 1}, "unknown key `accelerator_hour`; did you mean `accelerator_hours`"),
    ],
)
def test_what_cannot_end_a_search_is_refused(project_with, strategy, stop_when, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        project_with(strategy, stop_when=stop_when)


# constraints


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_what_misses_a_constraint_never_wins(strategy, project_with):
    def measured(configuration, load):
        missed = "tpot_ms mean must be at most 50 and is 60, 20.0 % above it"
        slow = configuration.options.get("max_num_seqs") == 16
        return Measured(around(speed(configuration)), constraints_missed=missed if slow else None)

    past = run_search(project_with(strategy, objective={"constraints": {"tpot_ms": {"mean": 50}}}), measured)
    assert past[-1].winner.configuration.options == {"max_num_seqs": 32}
    verdict = next(each for each in past[0].decision.candidates if each.candidate == "max_num_seqs=16")
    assert verdict.verdict == "constraint missed" and "20.0 % above it" in verdict.why


def test_an_incumbent_that_misses_a_constraint_is_replaced_by_one_that_keeps_it(two):
    def measured(configuration, load):
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

    def measured(configuration, load):
        return Measured([1e4 / value for value in around(speed(configuration))])

    assert METRICS.get(metric).higher_is_better is False
    assert run_search(project, measured)[-1].winner.configuration.options == {"max_num_seqs": 16}


def test_simulated_tables_have_the_columns_of_real_ones(project_with):
    project = project_with()
    plan = search.plan(project, "sequences", [])
    known = {run: measure(plan.candidates[0].configuration, Load(workload="cpu-sharegpt")) for run in plan.run_ids()}
    table, rounds = tables(project.study, plan, known)
    assert set(table) <= set(schemas.STAGE_TABLE.names)
    assert set(rounds) <= set(schemas.ROUNDS.names)
