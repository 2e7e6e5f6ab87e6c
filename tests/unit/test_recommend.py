"""The answer: the winner's command, its gain on every workload, and what could not be compared."""

import json

import pandas as pd
import pytest
from made_study import stage_rows

from servelab.aggregate import improvements
from servelab.plan import Incumbent, apply, baseline, plan_stage
from servelab.recommend import recommend, render_recommendation
from servelab.study import COMPARISON, Candidate

VARIABLES = {"OMP_NUM_THREADS": "2"}


@pytest.fixture
def answer(study_content, make_project, tmp_path):
    """The recommendation after runs with these rounds, by candidate and workload."""

    def make(rounds_by_workload, overrides, validity=None):
        study_content["workloads"] = list(rounds_by_workload)
        project = make_project(study_content)
        winner = apply(baseline(project).configuration, overrides)
        plan = plan_stage(project, COMPARISON, Incumbent(candidate="a", configuration=winner))
        for run in plan.run_ids():
            (tmp_path / run).mkdir()
            manifest = {"command": ["server", "--model", "a b"], "environment_variables": VARIABLES}
            (tmp_path / run / "manifest.json").write_text(json.dumps(manifest))
        made = [
            stage_rows(rounds, stage=COMPARISON, workload=name, validity=validity)
            for name, rounds in rounds_by_workload.items()
        ]
        table, rounds = (pd.concat(frames) for frames in zip(*made, strict=True))
        gains = improvements(table, rounds, rounds.assign(definition=None)).to_pandas()
        titles = {name: name.title() for name in study_content["workloads"]}
        return recommend(project.study, plan, table, rounds, gains, tmp_path, titles)

    return make


def test_gain_on_every_workload_and_the_failure_on_one(answer):
    rounds = {
        "cpu-sharegpt": {"baseline": [100, 101, 99], "winner": [150, 151, 149]},
        "cpu-short": {"baseline": [100, 101, 99], "winner": "out_of_memory"},
    }
    recommended = answer(rounds, Candidate(options={"max_num_seqs": 8}))
    assert recommended["changed"]
    assert recommended["command"].endswith("--parallel 8")
    assert recommended["launch_command"] == "env OMP_NUM_THREADS=2 server --model 'a b'"
    gain, failure = recommended["improvements"]
    assert gain["change_percent"] == pytest.approx(50) and gain["n"] == 3 and gain["failed"] is None
    assert failure["change_percent"] is None
    assert failure["failed"] == "winner: out_of_memory: the telling line"
    said = render_recommendation(recommended, "results/report.html")
    assert "+50.0 %" in said and "not comparable: winner: out_of_memory" in said and "results/report.html" in said


def test_noise_is_called_noise(answer):
    rounds = {"cpu-sharegpt": {"baseline": [100, 120, 80], "winner": [110, 130, 90]}}
    said = render_recommendation(answer(rounds, Candidate(options={"max_num_seqs": 8})), "report.html")
    assert "within noise" in said or "no interval" in said


def test_a_baseline_that_won_is_recommended(answer):
    recommended = answer({"cpu-sharegpt": {"baseline": [100, 101, 99]}}, Candidate(label="nothing"))
    assert not recommended["changed"] and recommended["improvements"] == []
    assert recommended["run_id"] == recommended["baseline_run_id"]
    assert "keep the baseline" in render_recommendation(recommended, "report.html")


def test_another_number_format_is_named_in_the_command(answer):
    rounds = {"cpu-sharegpt": {"baseline": [100, 101, 99], "winner": [150, 151, 149]}}
    recommended = answer(rounds, Candidate(model="q4_0"))
    assert recommended["model"] == "SmolLM2-135M-Instruct-q4_0"
    assert recommended["command"] == "llama-server --model SmolLM2-135M-Instruct-q4_0"
    assert "quality of the answers was not" in render_recommendation(recommended, "report.html")


def test_the_models_own_weights_need_no_note(answer):
    assert answer({"cpu-sharegpt": {"baseline": [100, 101, 99]}}, Candidate(label="nothing"))["note"] is None


def test_what_the_checks_found_is_carried_and_said(answer):
    rounds = {"cpu-sharegpt": {"baseline": [100, 101, 99], "winner": [150, 151, 149]}}
    recommended = answer(rounds, Candidate(options={"max_num_seqs": 8}), {"baseline": "invalid", "winner": "suspect"})
    for place in (recommended, recommended["improvements"][0]):
        assert place["validity"] == "suspect" and place["validity_note"] == "what makes winner suspect"
        assert (
            place["baseline_validity"] == "invalid" and place["baseline_validity_note"] == "what makes baseline invalid"
        )
    said = render_recommendation(recommended, "report.html")
    assert "100.0‡ ->      150.0†" in said
    assert "‡ Cpu-Sharegpt, baseline: invalid: what makes baseline invalid" in said
    assert "† Cpu-Sharegpt, optimized: suspect: what makes winner suspect" in said


def test_a_suspect_baseline_that_won_is_told(answer):
    recommended = answer(
        {"cpu-sharegpt": {"baseline": [100, 101, 99]}}, Candidate(label="nothing"), {"baseline": "suspect"}
    )
    said = render_recommendation(recommended, "report.html")
    assert "† Deciding workload, baseline: suspect: what makes baseline suspect" in said


def test_valid_runs_need_no_word(answer):
    rounds = {"cpu-sharegpt": {"baseline": [100, 101, 99], "winner": [150, 151, 149]}}
    recommended = answer(rounds, Candidate(options={"max_num_seqs": 8}))
    assert recommended["validity"] == recommended["baseline_validity"] == "ok"
    assert recommended["validity_note"] is None
    assert "checks found" not in render_recommendation(recommended, "report.html")


def test_a_loss_is_said_with_what_to_use_there(answer):
    rounds = {
        "cpu-sharegpt": {"baseline": [100, 101, 99], "winner": [150, 151, 149]},
        "cpu-short": {"baseline": [100, 101, 99], "winner": [80, 81, 79]},
    }
    recommended = answer(rounds, Candidate(options={"max_num_seqs": 8}))
    assert [row["guard"] for row in recommended["improvements"]] == ["holds", "loses"]
    assert [row["candidate"] for row in recommended["by_workload"]] == ["winner", "baseline"]
    said = render_recommendation(recommended, "report.html")
    assert "It loses more than 5 % on 1 workload:\n    Cpu-Short: -20.0 % (95 % interval" in said
    assert "Better where a workload is all you serve:\n    Cpu-Short: baseline (+25.0 %" in said
    assert "        serve baseline" in said


def test_without_a_loss_nothing_is_said_of_one(answer):
    rounds = {"cpu-sharegpt": {"baseline": [100, 101, 99], "winner": [150, 151, 149]}}
    said = render_recommendation(answer(rounds, Candidate(options={"max_num_seqs": 8})), "report.html")
    assert "loses" not in said and "Better where" not in said
