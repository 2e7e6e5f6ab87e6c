"""What is said of a study on its way, from files that were made for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_study import ROOT, demo_study

from servelab.claims import claim
from servelab.study import Study
from servelab.study_progress import ProgressLines, StudyProgress

BASELINE, FAST, SLOW = "0" * 20, "1" * 20, "2" * 20


class Results:
    """A results folder in which a study of one stage is planned: a baseline and two candidates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        content = demo_study()
        content["stages"] = [{"name": "batch", "candidates": [{"label": "fast"}, {"label": "slow"}]}]
        content["stages"][0]["candidates"] = [
            {"label": name, "options": {"max_num_seqs": count}} for name, count in (("fast", 8), ("slow", 16))
        ]
        self.on = content["objective"]["on"]
        self.study = Study.model_validate(content)
        self.plan("batch", {"baseline": BASELINE, "fast": FAST, "slow": SLOW})

    def plan(self, stage: str, runs: dict[str, str]) -> None:
        candidates = [
            {
                "candidate": name,
                "configuration": {"accelerators": 1},
                "runs": [{"run_id": run_id, "workload": self.on}],
            }
            for name, run_id in runs.items()
        ]
        self.write(f"studies/{self.study.study}/stages/{stage}/plan.json", {"candidates": candidates})

    def measured(self, run_id: str, values: list[float], outcome: str = "ok", seconds: float = 60.0) -> None:
        status = {
            "run_id": run_id,
            "outcome": outcome,
            "objective_rounds": values,
            "success_rate": 1.0 if outcome == "ok" else 0.0,
            "accelerator_s": seconds,
        }
        self.write(f"runs/{run_id}/status.json", status)

    def write(self, name: str, content: object) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))

    def progress(self) -> StudyProgress:
        return StudyProgress(self.study, self.folder)

    def line(self, stage: str = "batch") -> str:
        name, _, text = self.progress().stage(stage).line().partition(": ")
        assert name == f"{self.study.study}, {stage}"
        return text


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path)


def test_nothing_is_measured_yet(results):
    assert results.line() == "0 done (0 failed), 3 left; no estimate yet"
    count = 2 * len(results.study.workloads)
    assert results.line("comparison") == f"waits for the stages before, at most {count} runs"


def test_without_a_plan_a_stage_says_how_many_runs_it_can_have(results):
    (results.folder / f"studies/{results.study.study}/stages/batch/plan.json").unlink()
    assert results.line() == "waits for the stages before, at most 3 runs"


def test_the_best_so_far_with_its_gain_and_the_time_that_is_left(results):
    results.measured(BASELINE, [100.0, 102.0, 98.0], seconds=100)
    assert results.line().endswith("best so far: baseline, total_tokens_per_s 100.0; about 3 min left")
    results.measured(FAST, [120.0, 122.0, 118.0], seconds=50)
    line = results.line()
    assert line.startswith("2 done (0 failed), 1 left; best so far: fast, total_tokens_per_s 120.0, +20.0 % (+1")
    assert line.endswith(") against the baseline; about 75 s left")


def test_one_round_has_no_interval(results):
    results.measured(BASELINE, [100.0])
    results.measured(FAST, [110.0])
    assert "fast, total_tokens_per_s 110.0, +10.0 % against the baseline" in results.line()


def test_failed_runs_count_as_done_and_are_never_the_best(results):
    results.measured(BASELINE, [100.0])
    results.measured(FAST, [], "failed")
    assert results.line().startswith("2 done (1 failed), 1 left; best so far: baseline")


def test_runs_of_an_older_version_have_no_figure_but_count(results):
    results.write(
        f"runs/{BASELINE}/status.json", {"run_id": BASELINE, "outcome": "ok", "success_rate": 1.0, "accelerator_s": 60}
    )
    assert results.line() == "1 done (0 failed), 2 left; about 2 min left"


def test_the_winner_is_the_decisions_not_the_fastest(results):
    for run_id, value in ((BASELINE, 100.0), (FAST, 101.0), (SLOW, 90.0)):
        results.measured(run_id, [value])
    assert results.line().startswith("3 done (0 failed), 0 left; best so far: fast")
    decision = {
        "winner": {"candidate": "baseline"},
        "candidates": [{"run_id": run_id} for run_id in (BASELINE, FAST, SLOW)],
    }
    results.write(f"studies/{results.study.study}/stages/batch/decision.json", decision)
    assert results.line() == "3 done (0 failed), 0 left; winner: baseline, total_tokens_per_s 100.0"
    results.plan("batch", {"baseline": BASELINE, "fast": FAST, "another": "3" * 20})
    assert "best so far: fast" in results.line()  # the decision was on other runs


def test_what_is_running_counts_and_divides_the_time(results):
    results.measured(BASELINE, [100.0], seconds=100)
    for number, run_id in enumerate((FAST, SLOW)):
        (results.folder / f"runs/.{run_id}.elsewhere.{number}.1700000000.part").mkdir()
    dead = results.folder / f"runs/.{BASELINE}.{os.uname().nodename}.1.1700000000.part"
    dead.mkdir()
    assert results.line().startswith("1 done (0 failed), 2 left (2 running)")
    assert results.line().endswith("about 2 min left")
    running = {attempt.id: what for attempt, what in results.progress().running()}
    assert running == {FAST: "batch, fast", SLOW: "batch, slow"}


def test_an_attempt_of_this_host_runs_as_long_as_its_claim(results):
    attempt = results.folder / f"runs/.{FAST}.{os.uname().nodename}.{os.getpid()}.1700000000.part"
    attempt.mkdir(parents=True)
    assert "running" not in results.line()
    with claim(results.folder / "runs" / FAST):
        assert "(1 running)" in results.line()


def test_a_workflow_says_a_line_now_and_then_and_one_at_the_end(results):
    lines = ProgressLines([results.progress()])
    results.measured(BASELINE, [100.0])
    assert len(lines.ended(BASELINE)) == 1
    results.measured(FAST, [90.0])
    assert lines.ended(FAST) == []
    results.measured(SLOW, [80.0])
    (last,) = lines.ended(SLOW)
    assert "3 done (0 failed), 0 left" in last
    assert lines.ended("9" * 20) == []


def status(results: Results, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/status.py", "--results", str(results.folder), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_status_of_all_studies_with_results_and_of_one(results):
    results.measured(BASELINE, [100.0])
    for arguments in ((), (results.study.study,)):
        done = status(results, *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0].startswith(f"{results.study.study}, ")


def test_status_names_an_unknown_study_and_says_when_there_is_none(results, tmp_path):
    done = status(results, "no-such")
    assert done.returncode == 2
    assert "no-such.yaml: no such study; those with results: cpu-smollm2" in done.stderr
    results.folder = tmp_path / "empty"
    assert "no study has begun" in status(results).stderr
