"""Decisions: noise is not promoted, failures never win, and each verdict says why."""

import math

import numpy as np
import pytest
from made_study import stage_rows

from servelab.search.decide import compare, decide_stage
from servelab.search.planning import plan_stage
from servelab.study.configuration import baseline


@pytest.fixture
def decide(study_content, make_project):
    def run(candidates, per_node=1, accelerators=None, validity=None, faults=None, **objective):
        study_content["objective"] |= objective
        study_content["hardware"]["per_node"] = per_node
        project = make_project(study_content)
        plan = plan_stage(project, "sequences", baseline(project.study))
        made = stage_rows(
            candidates,
            accelerators=accelerators,
            per_node=per_node,
            validity=validity,
            per=project.study.objective.per,
            **(faults or {}),
        )
        return decide_stage(project.study, plan, made[0])

    return run


def verdicts(decision):
    return {entry.candidate: entry.verdict for entry in decision.candidates}


def test_the_best_of_the_better_wins(decide):
    decision = decide({"base": [100, 101, 99], "a": [120, 121, 119], "b": [140, 141, 139], "c": [80, 81, 79]})
    assert decision.winner.candidate == "b" and decision.changed
    assert verdicts(decision) == {"base": "incumbent", "a": "better", "b": "winner", "c": "worse"}
    assert decision.candidates[2].change_percent == pytest.approx(40, abs=0.01)


def test_noise_is_not_promoted(decide):
    decision = decide({"base": [100, 120, 80], "a": [125, 95, 100]})
    assert decision.winner.candidate == "base" and not decision.changed
    assert verdicts(decision)["a"] == "within noise"


@pytest.mark.parametrize(
    ("value", "margin", "verdict"),
    [
        (150, 50, "within margin"),
        (150.1, 50, "winner"),
        (106, 5, "winner"),
        (105, 6, "within margin"),
        (104, 0, "winner"),
    ],
)
def test_a_gain_must_exceed_the_margin_and_no_more(decide, value, margin, verdict):
    assert verdicts(decide({"base": [100], "a": [value]}, margin_percent=margin))["a"] == verdict


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_objective_that_is_no_number_never_wins(decide, value):
    decision = decide({"base": [100, 101, 99], "a": [value] * 3, "b": [90, 91, 89]})
    assert verdicts(decision) == {"base": "incumbent", "a": "failed", "b": "worse"}
    assert decision.candidates[1].why == "total_tokens_per_s could not be computed"
    assert decide({"base": [value] * 3, "a": [10, 11, 9]}).winner.candidate == "a"


def test_a_candidate_that_was_not_run_has_that_verdict(study_content, make_project):
    project = make_project(study_content)
    table, _ = stage_rows({"base": [100, 101, 99], "a": [120, 121, 119]})
    table.loc[1, ["outcome", "reason", "message"]] = ["not run", "budget", "over the budget"]
    plan = plan_stage(project, "sequences", baseline(project.study))
    verdict = decide_stage(project.study, plan, table).candidates[1]
    assert (verdict.verdict, verdict.why) == ("not run", "over the budget")


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


def test_a_suspect_run_can_win_and_its_verdict_says_so(decide):
    rounds = {"base": [100, 101, 99], "a": [120, 121, 119]}
    decision = decide(rounds, validity={"base": "suspect", "a": "suspect"})
    assert verdicts(decision)["a"] == "winner"
    assert decision.candidates[0].why == "the stage starts from it; suspect: what makes base suspect"
    assert decision.candidates[1].why.endswith(
        "; the incumbent is suspect: what makes base suspect; suspect: what makes a suspect"
    )


def test_single_starts_are_judged_by_the_noise_that_is_assumed(decide):
    decision = decide({"base": [100], "a": [103.4], "b": [103.8], "c": [96.4]}, margin_percent=3)
    assert verdicts(decision) == {"base": "incumbent", "a": "within noise", "b": "winner", "c": "worse"}
    low = 100 * np.expm1(np.log(1.038) - 3.182446 * 0.025 * np.sqrt(2))
    assert decision.candidates[2].change_ci95_low_percent == pytest.approx(low)


def test_per_accelerator_counts_what_a_candidate_uses(decide):
    rounds = {"base": [100, 101, 99], "two": [150, 151, 149]}
    accelerators = {"base": 1, "two": 2}
    per_accelerator = decide(rounds, per_node=8, accelerators=accelerators, per="accelerator")
    assert verdicts(per_accelerator)["two"] == "worse"
    per_deployment = decide(rounds, per_node=8, accelerators=accelerators, per="deployment")
    assert verdicts(per_deployment)["two"] == "winner"


def test_lower_is_better_for_a_latency(decide):
    assert decide({"base": [100, 101, 99], "a": [50, 51, 49]}, metric="ttft_ms").winner.candidate == "a"


# single requests that failed


@pytest.fixture
def with_failures(decide):
    """Decides with success rates by label; at least 99 % must succeed."""
    return lambda rounds, rates, **objective: decide(
        rounds, faults={"success_rate": rates}, **{"min_success_rate": 0.99} | objective
    )


def test_a_candidate_of_many_failed_requests_does_not_win_over_a_clean_incumbent(with_failures):
    decision = with_failures({"base": [100, 101, 99], "a": [150, 151, 149]}, {"a": 0.9899})
    assert not decision.changed and verdicts(decision)["a"] == "failed"
    why = decision.candidates[1].why
    assert why.startswith("98.99 % of the requests succeeded, 99 % are required; measured: +50.0 %")
    assert decision.candidates[1].change_percent == pytest.approx(50, abs=0.01)


@pytest.mark.parametrize(
    ("values", "wins"),
    [
        ([50, 51, 49], False),  # half as fast
        ([98, 98.2, 97.8], False),  # slower beyond noise, but not by the margin
        ([60, 140, 90], False),  # within noise, but slower than the margin allows
        ([99, 104, 96], True),
        ([100.5, 101, 100], True),  # faster, but not by the margin
        ([120, 121, 119], True),
    ],
)
def test_an_incumbent_of_many_failed_requests_is_replaced_only_by_one_that_is_not_slower(with_failures, values, wins):
    decision = with_failures({"base": [100, 100.3, 99.7], "a": values}, {"base": 0.98}, margin_percent=3)
    assert decision.changed is wins
    assert decision.candidates[0].why == "98.00 % of the requests succeeded, 99 % are required"
    assert "the incumbent: 98.00 % of the requests succeeded" in decision.candidates[1].why


def test_where_requests_fail_everywhere_speed_decides(with_failures):
    rates = {"base": 0.98, "a": 0.97, "b": 0.98}
    decision = with_failures({"base": [100, 101, 99], "a": [150, 151, 149], "b": [50, 51, 49]}, rates)
    assert verdicts(decision) == {"base": "incumbent", "a": "winner", "b": "worse"}
    assert "; the incumbent: 98.00 %" in decision.reason and "; this candidate: 97.00 %" in decision.reason
    decision = with_failures({"base": [100, 120, 80], "a": [125, 95, 110]}, rates)
    assert verdicts(decision)["a"] == "within noise"


def test_a_clean_candidate_is_chosen_before_a_faster_one_of_failed_requests(with_failures):
    rates = {"base": 0.98, "a": 0.97}
    decision = with_failures({"base": [100, 101, 99], "a": [150, 151, 149], "b": [110, 111, 109]}, rates)
    assert verdicts(decision) == {"base": "incumbent", "a": "better", "b": "winner"}


# disturbed runs

BUSY = "busy machine: others used 43.0 % of the CPUs, 0.0 % were stolen (worst round)"


@pytest.mark.parametrize(
    ("values", "verdict"), [(157, "winner"), (20, "cannot tell"), (51, "cannot tell"), (58, "winner")]
)
@pytest.mark.parametrize("label", ["base", "a"])
def test_a_disturbed_run_is_never_beaten_and_goes_to_the_proof_where_it_is_ahead_by_the_margin(
    decide, label, values, verdict
):
    """Means of three starts of 25 % scatter by 20 % of each other."""
    rounds = {"base": [50, 50.1, 49.9], "a": [values, values + 1, values - 1]}
    decision = decide(rounds, validity={label: "suspect"}, faults={"disturbed": {label: BUSY}})
    assert verdicts(decision)["a"] == verdict
    assert (
        f"{ {'base': 'the incumbent', 'a': 'this candidate'}[label] } was disturbed, {BUSY}"
        in decision.candidates[1].why
    )
    if verdict == "cannot tell":
        assert decision.reason.endswith("; of 1 it cannot be told, because a run was disturbed")


@pytest.mark.parametrize("label", ["base", "a"])
def test_of_a_run_that_failed_while_it_was_disturbed_it_cannot_be_told(decide, label):
    rounds = {"base": [50, 51, 49], "a": [90, 91, 89]} | {label: "round_timeout"}
    decision = decide(rounds, faults={"disturbed": {label: BUSY}})
    assert not decision.changed and verdicts(decision)["a"] == "cannot tell"
    assert f"failed while it was disturbed, {BUSY} (round_timeout: " in decision.candidates[1].why


def test_of_two_that_are_better_the_undisturbed_one_wins(decide):
    rounds = {"base": [50, 50.1, 49.9], "a": [200, 201, 199], "b": [60, 60.1, 59.9]}
    decision = decide(rounds, faults={"disturbed": {"a": BUSY}})
    assert verdicts(decision) == {"base": "incumbent", "a": "better", "b": "winner"}


@pytest.mark.parametrize("label", ["base", "a"])
def test_a_constraint_that_a_disturbed_run_misses_shows_nothing(decide, label):
    rounds = {"base": [50, 51, 49], "a": [90, 91, 89]}
    missed = {"constraints_missed": {label: "ttft_ms mean must be at most 5 and is 6"}}
    decision = decide(rounds, faults={"disturbed": {label: BUSY}} | missed)
    assert verdicts(decision)["a"] == "cannot tell" and "ttft_ms mean must" in decision.candidates[1].why
    assert verdicts(decide(rounds, faults=missed))["a"] == {"base": "winner", "a": "constraint missed"}[label]


@pytest.mark.parametrize(("change", "verdict"), [(2.9, "within margin"), (3.1, "better"), (-3.1, "worse")])
def test_logs_are_judged_by_the_margin(study, change, verdict):
    assert study.objective.margin_percent == 3
    assert compare(study, change, change - 1, change + 1)[0] == verdict
