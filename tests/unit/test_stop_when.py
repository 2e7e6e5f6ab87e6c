"""What ends a search early: a budget."""

from __future__ import annotations

import random
import re

import pytest
from made_search import measure, of, speed

from servelab.core.errors import ConfigError
from servelab.search import strategies as search
from servelab.search.simulate import Measured, run_search, simulate_project
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
    found = simulate_project(project, noisy)
    assert found.proof.pairs == pairs
    assert found.accelerator_s <= max(hours, 1.2) * 3600 + 1


def test_a_budget_that_is_enough_leaves_out_nothing(project_with):
    past = run_search(project_with(stop_when={"accelerator_hours": 0.75}), measure)
    assert all(candidate.not_run is None for stage in past for candidate in stage.plan.candidates)


def test_what_was_measured_before_is_in_no_budget(two):
    """The re-check's last choice turned back was measured; the other one was not."""
    past = run_search(two(stop_when={"accelerator_hours": 0.55}), of({"": 100, "A": 110, "AB": 150, "B": 140}))
    assert [candidate.not_run is None for candidate in past[-1].plan.candidates] == [True, False, True]


@pytest.mark.parametrize(
    ("strategy", "stop_when", "message"),
    [
        (
            "grid",
            {"accelerator_hours": 1},
            "`grid` does not support it; leave it out, or use adaptive or staged",
        ),
        ("halving", {}, "`halving` is gone since 0.2.0; use `adaptive`"),
        ("staged", {"accelerator_hour": 1}, "unknown key `accelerator_hour`; did you mean `accelerator_hours`"),
    ],
)
def test_what_cannot_end_a_search_is_refused(project_with, strategy, stop_when, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        project_with(strategy, stop_when=stop_when)
