"""What is said of a study on its way, from files that were made for it."""

from __future__ import annotations

import os
from pathlib import Path

import made_run
import pytest
from made_study import demo_study
from servelab_command import run_servelab
from status import log_of

from servelab.core.errors import ConfigError
from servelab.search.decide import undecided
from servelab.search.progress import StudyProgress
from servelab.study.configuration import baseline
from servelab.study.plan import Plan, PlannedCandidate, PlannedRun
from servelab.study.study import CONFIRM, Study

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
        self.plan("batch", {"baseline": [BASELINE], "fast": [FAST], "slow": [SLOW]})

    def plan(self, stage: str, runs: dict[str, list[str]], start: str | None = None) -> None:
        """With the runs of each candidate: on as many starts, or on the one start if it is given."""
        candidates = [
            PlannedCandidate(
                candidate=name,
                is_incumbent=name == "baseline",
                configuration=baseline(self.study).configuration,
                changes={},
                command="serve",
                refused=None,
                runs=[
                    PlannedRun(run_id=run_id, workload=self.on, start=start or f"search-{number}", spec=made_run.spec())
                    for number, run_id in enumerate(run_ids)
                ],
            )
            for name, run_ids in runs.items()
        ]
        plan = Plan(study=self.study.study, stage=stage, title=stage, applies=True, reason="", candidates=candidates)
        plan.write(self.folder / f"studies/{self.study.study}/stages/{stage}/plan.json")

    def measured(
        self,
        run_id: str,
        values: list[float],
        outcome: str = "ok",
        seconds: float = 60.0,
        startup_s: float = 20.0,
        disturbed: str | None = None,
    ) -> None:
        status = made_run.status(
            run_id=run_id,
            outcome=outcome,
            disturbed=disturbed,
            objective_rounds=values,
            success_rate=1.0 if outcome == "ok" else 0.0,
            accelerator_s=seconds,
            startup_s=startup_s,
            load_s=10.0,
            start_id=run_id,
        )
        status.write(self.folder / f"runs/{run_id}/status.json")

    def progress(self) -> StudyProgress:
        return StudyProgress(self.study, self.folder)

    def line(self, stage: str = "batch") -> str:
        name, _, text = self.progress().stage(stage).line().partition(": ")
        assert name == f"{self.study.study}, {stage}"
        return text


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path)


def test_the_best_so_far_with_its_gain_and_the_time_that_is_left(results):
    results.measured(BASELINE, [100.0, 102.0, 98.0], seconds=100)
    assert results.line().endswith(
        "best so far: baseline, total_tokens_per_s 100.0; about 3 min and 0.056 accelerator-hours left"
    )
    results.measured(FAST, [120.0, 122.0, 118.0], seconds=50)
    line = results.line()
    assert line == (
        "2 runs done (0 failed), 1 left on 1 server start; best so far: fast, total_tokens_per_s 120.0, +20.0 % against"
        " the baseline; about 75 s and 0.021 accelerator-hours left"
    )


def test_of_a_proof_only_runs_and_time_are_shown(results):
    results.measured(BASELINE, [100.0])
    results.plan(CONFIRM, {"baseline": [BASELINE, "5" * 20], "winner": [FAST, SLOW]}, start="proof-0")
    # the winner's two runs and the baseline's other one: a start each of 20 s, and 40 s a run
    left = "about 160 s and 0.044 accelerator-hours left"
    assert results.line(CONFIRM) == f"1 run done (0 failed), 3 left on 2 server starts; {left}"


def test_failed_and_disturbed_runs_count_as_done_and_are_never_the_best(results):
    results.measured(BASELINE, [100.0])
    results.measured(FAST, [], "failed")
    results.measured(SLOW, [900.0], disturbed="waited")
    assert results.line().startswith("3 runs done (1 failed), 0 left; best so far: baseline")


def test_the_winner_is_the_decisions_not_the_fastest(results):
    for run_id, value in ((BASELINE, 100.0), (FAST, 101.0), (SLOW, 90.0)):
        results.measured(run_id, [value])
    assert results.line().startswith("3 runs done (0 failed), 0 left; best so far: fast")
    folder = results.folder / f"studies/{results.study.study}/stages/batch"
    undecided(results.study, Plan.read(folder / "plan.json")).write(folder / "decision.json")
    assert results.line() == "3 runs done (0 failed), 0 left; winner: baseline, total_tokens_per_s 100.0"
    results.plan("batch", {"baseline": [BASELINE], "fast": [FAST], "another": ["3" * 20]})
    assert "best so far: fast" in results.line()  # the decision was on other runs


def test_what_is_running_counts_and_divides_the_time(results):
    results.measured(BASELINE, [100.0], seconds=100)
    for number, run_id in enumerate((FAST, SLOW)):
        (results.folder / f"runs/.{run_id}.elsewhere.{number}.1700000000.part").mkdir()
    dead = results.folder / f"runs/.{BASELINE}.{os.uname().nodename}.1.1700000000.part"
    dead.mkdir()
    assert results.line().startswith("1 run done (0 failed), 2 left on 2 server starts (2 running)")
    assert results.line().endswith("about 100 s and 0.056 accelerator-hours left")
    running = {attempt.id: what for attempt, what in results.progress().running()}
    assert running == {FAST: "batch, fast", SLOW: "batch, slow"}


def status(results: Results, *arguments: str):
    return run_servelab("status", "--results", results.folder, *arguments)


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
    assert "no study has started" in status(results).stderr


def test_the_newest_log_of_a_run_is_followed(tmp_path):
    folder = tmp_path / "logs/measure"
    folder.mkdir(parents=True)
    for number, name in enumerate(("0ab", "0ac", "1")):
        (folder / f"{name}.log").touch()
        os.utime(folder / f"{name}.log", (number, number))
    assert log_of("0a", tmp_path).name == "0ac.log" and log_of("", tmp_path).name == "1.log"
    with pytest.raises(ConfigError, match="has no log whose name begins so"):
        log_of("2", tmp_path)
