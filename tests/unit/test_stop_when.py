"""What ends a search early: a budget, an objective or SLOs that are reached."""

from __future__ import annotations

import re

import pytest
from made_search import around, measure, of, speed

from servelab.core.errors import ConfigError
from servelab.search import strategies as search
from servelab.search.simulate import Measured, run_search
from servelab.study.study import CONFIRM


def test_a_budget_leaves_out_what_it_does_not_reach_for(project_with):
    """Runs take 0.1 hours: two of the baseline and three candidates, and then half of one is left."""
    project = project_with(stop_when={"accelerator_hours": 0.55})
    past = run_search(project, measure)
    left_out = past[1].plan.candidates[1]
    assert left_out.runs == []
    assert "0.5 are spent, and this run would take about 0.1, but 0.05 are left" in left_out.not_run
    verdict = past[1].decision.candidates[1]
    assert (verdict.verdict, verdict.why) == ("not run", left_out.not_run)
    proof = search.plan(project, CONFIRM, past)
    assert [candidate.candidate for candidate in proof.candidates] == ["baseline", "winner"]
    assert all(candidate.runs for candidate in proof.candidates)


def test_a_budget_that_is_enough_leaves_out_nothing(project_with):
    past = run_search(project_with(stop_when={"accelerator_hours": 0.75}), measure)
    assert all(candidate.not_run is None for stage in past for candidate in stage.plan.candidates)


def test_what_was_measured_before_is_in_no_budget(two):
    """The re-check's last choice turned back was measured; the other one was not."""
    past = run_search(two(stop_when={"accelerator_hours": 0.55}), of({"": 100, "A": 110, "AB": 150, "B": 140}))
    assert [candidate.not_run is None for candidate in past[-1].plan.candidates] == [True, False, True]


def test_no_further_stage_once_the_objective_is_reached(project_with):
    past = run_search(project_with(stop_when={"objective_reached": 125}), measure)
    assert past[0].winner.candidate == "max_num_seqs=16"
    assert (
        not past[1].plan.applies
        and past[1].plan.reason == "the incumbent's total_tokens_per_s is 130, the target is 125"
    )
    assert [stage.plan.run_ids() for stage in past[1:]] == [past[0].plan.run_ids()[3:4]] * 2
    assert run_search(project_with(stop_when={"objective_reached": 135}), measure)[1].plan.applies


def test_no_further_stage_once_enough_requests_keep_the_slos(project_with):
    def measured(configuration, load, start):
        return Measured(around(speed(configuration)), slo_attainment=0.97)

    reached = {"objective": {"slos": {"ttft_ms": 500}}}
    past = run_search(project_with(stop_when={"slo_reached": 0.95}, **reached), measured)
    assert "97 % of the incumbent's requests meet the SLOs" in past[1].plan.reason
    assert run_search(project_with(stop_when={"slo_reached": 0.99}, **reached), measured)[1].plan.applies


@pytest.mark.parametrize(
    ("strategy", "stop_when", "message"),
    [
        (
            "grid",
            {"accelerator_hours": 1},
            "`grid` does not support it; leave it out, or use adaptive or staged",
        ),
        ("halving", {}, "`halving` is gone since 0.2.0; use `adaptive`"),
        ("staged", {"slo_reached": 0.9}, "needs limits; add `objective.slos`"),
        ("staged", {"accelerator_hour": 1}, "unknown key `accelerator_hour`; did you mean `accelerator_hours`"),
    ],
)
def test_what_cannot_end_a_search_is_refused(project_with, strategy, stop_when, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        project_with(strategy, stop_when=stop_when)
