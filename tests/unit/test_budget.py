"""What ends a search early: a budget."""

from __future__ import annotations

import random

import pytest
from made_search import measure, speed

from servelab.search.proof_plan import within_budget
from servelab.search.simulate import Measured, run_search, simulate_project


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
