"""Studies through the profile `slurm`: each run in a job of its own, on the accelerators it asked for and no other."""

from datetime import datetime
from itertools import combinations

import psutil
import pytest
from slurm.conftest import ASCEND, H100

pytestmark = [pytest.mark.slurm, pytest.mark.gate]
PARTITIONS = {H100: "gpu", ASCEND: "npu", "cpu": "cpu"}


def hardware(workspace, run):
    return workspace.spec(run)["hardware"]


def devices(workspace, run):
    """Indices of the devices a run had."""
    return {device["index"] for device in workspace.json(f"results/runs/{run}/manifest.json")["devices"]}


def runs_on(workspace, accelerator):
    return [run for run in workspace.runs() if hardware(workspace, run)["accelerator"] == accelerator]


def period(workspace, run):
    status = workspace.json(f"results/runs/{run}/status.json")
    return datetime.fromisoformat(status["started_at"]), datetime.fromisoformat(status["finished_at"])


def test_every_server_start_is_one_job_where_its_accelerators_are(finished):
    """A job is named by its last run; the baseline's two other workloads are measured in one."""
    measured_in = {run: finished.json(f"results/runs/{run}/status.json")["job_id"] for run in finished.runs()}
    assert sorted(measured_in[job["run"]] for job in finished.jobs) == sorted(set(measured_in.values()))
    assert len(finished.jobs) == len(measured_in) - 1
    for job in finished.jobs:
        assert job["state"] == "COMPLETED"
        assert job["partition"] == PARTITIONS[hardware(finished, job["run"])["accelerator"]]
    assert "baseline-search-0-gpus-sequences" in {job["name"] for job in finished.jobs}


def test_rules_that_need_no_accelerator_stay_here(finished):
    assert {job["comment"].partition("_wildcards_")[0] for job in finished.jobs} == {"rule_measure"}
    for study in ("cpus", "gpus", "npus"):
        assert (finished.folder / f"results/studies/{study}/report.html").exists()


def test_a_run_asks_for_its_accelerators_and_no_more(finished):
    for job in finished.jobs:
        wanted = hardware(finished, job["run"])
        kind = {H100: "gpu:h100", ASCEND: "npu:ascend910b"}.get(wanted["accelerator"])
        assert job["asked"] == (f"gres:{kind}:{wanted['count']}" if kind else "N/A")


def test_all_runs_succeed(finished):
    outcomes = {run: finished.json(f"results/runs/{run}/status.json") for run in finished.runs()}
    assert {run: status["message"] for run, status in outcomes.items() if status["outcome"] != "ok"} == {}


def test_two_of_four_on_eight_gpus_at_once_and_on_disjoint_ones(finished):
    runs = runs_on(finished, H100)
    assert len(runs) == 4
    assert all(len(devices(finished, run)) == 4 for run in runs)
    at_once = [
        (one, other)
        for one, other in combinations(runs, 2)
        if max(period(finished, one)[0], period(finished, other)[0])
        < min(period(finished, one)[1], period(finished, other)[1])
    ]
    assert at_once
    assert [pair for pair in at_once if devices(finished, pair[0]) & devices(finished, pair[1])] == []
    for three in combinations(runs, 3):
        assert not all(pair in at_once for pair in combinations(three, 2))


def test_npus_are_those_that_slurm_gave(finished):
    """Slurm sets no variable for them: the run asks it which they are."""
    shown = {}
    for run in runs_on(finished, ASCEND):
        variables = finished.json(f"results/runs/{run}/manifest.json")["environment_variables"]
        shown[len(devices(finished, run))] = variables["ASCEND_RT_VISIBLE_DEVICES"]
        assert set(variables["ASCEND_RT_VISIBLE_DEVICES"].split(",")) == devices(finished, run)
    assert shown == {2: "0,1", 8: "0,1,2,3,4,5,6,7"}


def test_no_process_and_no_half_run_is_left(finished):
    left = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(finished.folder)):
                left.append(process.cmdline())
        except psutil.Error:
            continue
    assert left == []
    assert finished.left_overs() == []
