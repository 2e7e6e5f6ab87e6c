"""Decisions: noise is not promoted, failures never win, and each verdict says why."""

import numpy as np
import pytest
from made_study import stage_rows

from servelab.decide import decide_stage
from servelab.plan import baseline, plan_stage


@pytest.fixture
def decide(study_content, make_project):
    def run(candidates, per_node=1, accelerators=None, validity=None, **objective):
        study_content["objective"] |= objective
        study_content["hardware"]["per_node"] = per_node
        project = make_project(study_content)
        plan = plan_stage(project, "sequences", baseline(project))
        made = stage_rows(candidates, accelerators=accelerators, per_node=per_node, validity=validity)
        return decide_stage(project.study, plan, *made)

    return run


def verdicts(decision):
    return {entry.candidate: entry.verdict for entry in decision.candidates}


def test_the_best_of_the_better_wins(decide):
    decision = decide({"base": [100, 101, 99], "a": [120, 121, 119], "b": [140, 141, 139], "c": [80, 81, 79]})
    assert decision.winner.candidate == "b" and decision.changed
    assert verdicts(decision) == {"base": "incumbent", "a": "better", "b": "winner", "c": "worse"}
    assert decision.candidates[2].change_percent == pytest.approx(40)


def test_noise_is_not_promoted(decide):
    decision = decide({"base": [100, 120, 80], "a": [125, 95, 110]})
    assert decision.winner.candidate == "base" and not decision.changed
    assert verdicts(decision)["a"] == "within noise"


def test_a_sure_gain_below_the_margin_does_not_move_the_search(decide):
    decision = decide({"base": [100.0, 100.1, 99.9], "a": [102.0, 102.1, 101.9]}, margin_percent=3)
    assert verdicts(decision)["a"] == "within margin"
    assert not decision.changed


def test_a_failed_candidate_never_wins_and_is_told(decide):
    decision = decide({"base": [100, 101, 99], "a": "out_of_memory", "b": "refused"})
    assert verdicts(decision) == {"base": "incumbent", "a": "failed", "b": "refused"}
    assert "out_of_memory: the telling line" in decision.candidates[1].why
    assert decision.candidates[2].run_id is None


def test_any_success_replaces_a_failed_incumbent(decide):
    decision = decide({"base": "crashed", "a": [10, 11, 9], "b": [20, 21, 19]})
    assert decision.winner.candidate == "b"
    assert decision.candidates[2].change_percent is None


def test_an_incumbent_of_nothing_is_replaced_by_what_is_always_more(decide):
    decision = decide({"base": [0, 0, 0], "a": [0, 5, 5], "b": [2, 3, 2]})
    assert verdicts(decision) == {"base": "incumbent", "a": "within noise", "b": "winner"}
    assert decision.candidates[2].change_percent is None
    assert "is 0" in decision.candidates[2].why


def test_nothing_wins_where_everything_failed(decide):
    decision = decide({"base": "crashed", "a": "crashed"})
    assert decision.winner.candidate == "base" and not decision.changed


def test_an_invalid_run_never_wins_and_is_told(decide):
    rounds = {"base": [100, 101, 99], "a": [900, 901, 899], "b": [110, 111, 109]}
    decision = decide(rounds, validity={"a": "invalid"})
    assert decision.winner.candidate == "b"
    assert verdicts(decision) == {"base": "incumbent", "a": "invalid", "b": "winner"}
    assert decision.candidates[1].why == "what makes a invalid"
    assert decision.candidates[1].change_percent is None


def test_an_invalid_incumbent_is_replaced_by_the_best_valid_candidate(decide):
    rounds = {"base": [900, 901, 899], "a": [10, 11, 9], "b": [20, 21, 19], "c": [30, 31, 29]}
    decision = decide(rounds, validity={"base": "invalid", "c": "invalid", "b": "suspect"})
    assert decision.winner.candidate == "b" and decision.changed
    assert decision.candidates[0].why == "what makes base invalid"
    assert decision.candidates[2].why == "the incumbent is invalid; suspect: what makes b suspect"
    assert decision.candidates[2].change_percent is None


def test_nothing_wins_where_all_are_invalid(decide):
    decision = decide({"base": [1, 2], "a": [3, 4]}, validity={"base": "invalid", "a": "invalid"})
    assert decision.winner.candidate == "base" and not decision.changed


def test_a_suspect_run_can_win_and_its_verdict_says_so(decide):
    rounds = {"base": [100, 101, 99], "a": [120, 121, 119]}
    decision = decide(rounds, validity={"base": "suspect", "a": "suspect"})
    assert verdicts(decision)["a"] == "winner"
    assert decision.candidates[0].why == "where the stage starts; suspect: what makes base suspect"
    assert decision.candidates[1].why.endswith(
        "; suspect, as the incumbent is: what makes base suspect; suspect: what makes a suspect"
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_invalid_run_wins_whatever_the_others_are(decide, seed):
    draw = np.random.default_rng(seed)
    labels = ["base", "a", "b", "c"]
    rounds = {label: list(draw.uniform(10, 1000) * draw.normal(1, 0.01, 3)) for label in labels}
    validity = {label: str(draw.choice(["ok", "suspect", "invalid"])) for label in labels}
    decision = decide(rounds, validity=validity)
    if decision.changed or set(validity.values()) != {"invalid"}:
        assert validity[decision.winner.candidate] != "invalid"


def test_a_single_round_has_no_interval_and_needs_the_margin(decide):
    decision = decide({"base": [100], "a": [102], "b": [110]}, margin_percent=3)
    assert verdicts(decision) == {"base": "incumbent", "a": "within margin", "b": "winner"}
    assert decision.candidates[2].change_ci95_low_percent is None


def test_per_accelerator_counts_what_a_candidate_uses(decide):
    rounds = {"base": [100, 101, 99], "two": [150, 151, 149]}
    accelerators = {"base": 1, "two": 2}
    per_accelerator = decide(rounds, per_node=8, accelerators=accelerators, per="accelerator")
    assert verdicts(per_accelerator)["two"] == "worse"
    per_deployment = decide(rounds, per_node=8, accelerators=accelerators, per="deployment")
    assert verdicts(per_deployment)["two"] == "winner"


def test_lower_is_better_for_a_latency(study_content, make_project):
    study_content["objective"]["metric"] = "ttft_ms"
    project = make_project(study_content)
    table, rounds = stage_rows({"base": [100, 101, 99], "a": [50, 51, 49]})
    rounds["metric"] = "ttft_ms"
    plan = plan_stage(project, "sequences", baseline(project))
    decision = decide_stage(project.study, plan, table, rounds)
    assert decision.winner.candidate == "a"


def test_planted_noise_is_promoted_no_more_often_than_the_interval_allows(decide):
    """Two equal candidates, 3 rounds each, 2 % noise, 200 tries: at most 2.5 %, and the margin takes most of those."""
    generator = np.random.default_rng(7)
    promoted = sum(
        decide({"base": list(generator.normal(100, 2, 3)), "a": list(generator.normal(100, 2, 3))}).changed
        for _ in range(200)
    )
    assert promoted <= 10
