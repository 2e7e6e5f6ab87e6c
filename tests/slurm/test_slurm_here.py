"""A whole study in one allocation: `salloc …`, then `servelab run STUDY --here`; cut off, and continued in another."""

from itertools import combinations

import pytest
from patience import until
from servelab_command import SERVELAB
from slurm.conftest import NVIDIA_SMI, SlurmWorkspace, gpu_study, slurm_with
from slurm.test_slurm_runs import devices, period

pytestmark = pytest.mark.slurm
ASKED = ("-N1", "--partition=gpu", "--gres=gpu:h100:8", "--cpus-per-task=8")


def allocated(workspace, log, *more):
    """`servelab run gpus --here` in an allocation of its own."""
    return workspace.begin(log, "salloc", *ASKED, *more, *SERVELAB, "run", "gpus", "--here")


def test_candidates_are_measured_side_by_side_in_one_job_and_what_was_cut_off_goes_on_in_the_next(cluster, tmp_path):
    workspace = SlurmWorkspace.on(cluster, tmp_path / "workspace", [gpu_study(candidates=4, workloads=["slow-20-s"])])
    before = len(cluster.jobs("all"))
    first = allocated(workspace, tmp_path / "first.log")
    job = until(lambda: cluster.running("gpu1"), "the allocation", 60)
    until(lambda: len(workspace.runs()) >= 2, "two runs", 300)
    until(lambda: workspace.left_overs(), "a run that is under way", 100)
    cluster.ask("scancel", job["id"])
    first.wait(120)
    workspace.until_no_process_is_left()
    kept = workspace.runs()
    assert len(kept) < 5 and first.returncode != 0
    second = allocated(workspace, tmp_path / "second.log")
    assert second.wait(600) == 0, (tmp_path / "second.log").read_text()[-6000:]
    assert len(workspace.runs()) == 5 and kept.items() <= workspace.runs().items()
    assert len(cluster.jobs("all")) - before == 2  # one queue wait each
    runs = [run for run in workspace.runs() if run not in kept]
    at_once = [
        pair
        for pair in combinations([*kept, *runs], 2)
        if max(period(workspace, run)[0] for run in pair) < min(period(workspace, run)[1] for run in pair)
    ]
    assert at_once and not [pair for pair in at_once if devices(workspace, pair[0]) & devices(workspace, pair[1])]
    assert workspace.left_overs() == []


def test_on_two_nodes_each_run_is_a_step_on_one_of_them(tmp_path):
    with slurm_with(NVIDIA_SMI, {"gpu1": "gpu:h100", "gpu2": "gpu:h100"}) as cluster:
        workspace = SlurmWorkspace.on(cluster, tmp_path / "workspace", [gpu_study(workloads=["slow-20-s"])])
        begun = allocated(workspace, log := tmp_path / "log", "-N2", "--ntasks-per-node=1")
        assert begun.wait(600) == 0, log.read_text()[-6000:]
        manifests = [workspace.json(f"results/runs/{run}/manifest.json") for run in workspace.runs()]
        assert {each["placement"]["batch"]["node"] for each in manifests} == {"gpu1", "gpu2"}
        assert len(cluster.jobs("all")) == 1 and workspace.left_overs() == []
