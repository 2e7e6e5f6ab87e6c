"""The load that a candidate's search for capacity sends first: what earlier stages found of the incumbent."""

from __future__ import annotations

import pytest
from made_search import TWO

from servelab.search import strategies as search
from servelab.search.decision import PastStage
from servelab.search.simulate import Measured, tables
from servelab.search.strategies.staged import probes
from servelab.study.study import CONFIRM, RECHECK

CAPACITY = {"capacity": {"of": "request_rate", "slos": {"ttft_ms": {"p90": 1000}}}}


@pytest.fixture
def studied(study_content, project_with):
    """A study of a capacity, with two stages and those of its search that are decided, of what A and B sustain."""

    def make(*borne, metric="capacity_per_s", failed=None):
        study_content["workloads"] = [{"name": "cpu-sharegpt", "load": CAPACITY}]
        project = project_with(
            stages=[dict(stage) for stage in TWO], objective={"metric": metric, "on": "cpu-sharegpt"}
        )
        past = []
        for stage, loads in zip(("first", "second"), borne, strict=False):
            plan = search.plan(project, stage, past)
            found = dict(zip((each.candidate for each in plan.candidates), loads, strict=True))
            table = made_table(project.study, plan, found, failed)
            past.append(PastStage(plan, search.decide(project.study, plan, table), table))
        return project, past

    return make


def made_table(study, plan, found, failed):
    speeds = iter(found.values())
    results = {each.candidate: next(speeds) for each in plan.candidates}
    by_run = {run.run_id: results[each.candidate] for each in plan.candidates for run in each.runs}
    runs = {
        run_id: Measured(failed=failed) if value is None else Measured([float(value)])
        for run_id, value in by_run.items()
    }
    table = tables(study, plan, runs)
    return table.assign(capacity_load=[results[name] for name in table["candidate"]])


def sent_first(plan):
    return {each.candidate: {run.spec.incumbent_capacity for run in each.runs} for each in plan.candidates}


def test_the_first_stage_searches_everything(studied):
    project, _ = studied()
    assert sent_first(search.plan(project, "first", [])) == {"baseline": {None}, "A": {None}}


def test_a_later_candidate_begins_at_what_the_winner_bears(studied):
    project, past = studied((10, 21))
    second = search.plan(project, "second", past)
    assert sent_first(second) == {"A": {None}, "B": {19.03}}
    again = PastStage(past[0].plan, past[0].decision, past[0].table.assign(capacity_load=[10.1, 21.5]))
    assert search.plan(project, "second", [again]).run_ids() == second.run_ids()  # measured again, a little otherwise


@pytest.mark.parametrize("basis, expected", [("deployment", 19.03), ("accelerator", 38.05)])
def test_it_scales_with_the_accelerators_where_the_objective_is_per_accelerator(basis, expected, studied):
    project, past = studied((10, 21))
    study = project.study
    bigger = past[0].winner.configuration.model_copy(update={"accelerators": 2, "options": {"threads": 2}})
    objective = study.objective.model_copy(update={"per": basis})
    assert probes(study.model_copy(update={"objective": objective}), past)(bigger) == expected


def test_what_was_measured_keeps_its_runs(studied):
    project, past = studied((10, 21), (21, 30))
    third = search.plan(project, RECHECK, past)
    # the winner is B's configuration, as stage `second` planned it; reverting B is A, reverting A is new
    assert sent_first(third) == {"B": {19.03}, "without first: A": {26.91}, "without second: B": {None}}
    assert {
        run.spec.incumbent_capacity for each in search.plan(project, CONFIRM, past).candidates for run in each.runs
    } == {None}


def test_another_objective_does_whole_searches(studied):
    project, past = studied((10, 21), metric="total_tokens_per_s")
    assert sent_first(search.plan(project, "second", past)) == {"A": {None}, "B": {None}}


def test_an_unknown_capacity_gives_whole_searches(studied):
    project, past = studied((10, 21))
    for unknown in (past[0].table.assign(capacity_load=[10.0, None]), None):
        stage = PastStage(past[0].plan, past[0].decision, unknown)
        assert sent_first(search.plan(project, "second", [stage]))["B"] == {None}


def test_a_candidate_below_the_incumbent_loses_and_says_so(studied):
    _, past = studied((10, 21), (21, None), failed="below_incumbent")
    decision = past[1].decision
    assert decision.winner.candidate == "A" and not decision.changed
    assert decision.candidates[1].verdict == "below the incumbent"
