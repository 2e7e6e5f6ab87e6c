"""However the workflow is ended while its jobs run: nothing is measured twice, and no server is left on any node."""

import os
import signal

import pytest
from patience import until
from slurm.conftest import SlurmWorkspace, gpu_study
from slurm.test_slurm_failures import END_S, serving, state_of

pytestmark = pytest.mark.slurm


@pytest.fixture
def slow(cluster, tmp_path):
    """Two runs, which go on at once."""
    return SlurmWorkspace.on(cluster, tmp_path / "workspace", [gpu_study(candidates=1, workloads=["slow-20-s"])])


@pytest.fixture
def slower(cluster, tmp_path):
    """As `slow`, but a busy machine cannot finish the load before Snakemake has cancelled its jobs."""
    return SlurmWorkspace.on(cluster, tmp_path / "workspace", [gpu_study(candidates=1, workloads=["slow-40-s"])])


def started(workspace):
    """The workflow, once it has a run that is being served, and that run's job."""
    return workspace.begin(workspace.folder / "said.log"), serving(workspace, "gpu1")


def ended(workspace, workflow):
    try:
        workflow.wait(END_S)
    finally:
        if workflow.poll() is None:
            workflow.kill()
    return (workspace.folder / "said.log").read_text()


def test_interrupted_it_cancels_its_jobs_and_goes_on_later(slower, cluster):
    workflow, job = started(slower)
    os.killpg(workflow.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    ended(slower, workflow)
    until(lambda: not cluster.jobs(), "the end of all jobs", END_S)
    slower.until_no_process_is_left()
    assert state_of(cluster, job) == "CANCELLED"
    assert slower.runs() == {}
    slower.snakemake()
    assert len(slower.runs()) == 2
    assert slower.left_overs() == []


def test_killed_its_jobs_are_cancelled_before_their_runs_start_again(slower, cluster):
    workflow, job = started(slower)
    workflow.kill()
    workflow.wait()
    slower.snakemake("--unlock")
    output = slower.snakemake()
    assert f"cancelled job {job['id']} of an earlier workflow: {job['name']}\n" in output
    jobs = {int(each["id"]): each["state"] for each in cluster.jobs("all") if each["run"] == job["run"]}
    since = [
        state for number, state in sorted(jobs.items()) if number >= int(job["id"])
    ]  # other tests have this run too
    assert since == ["CANCELLED", "COMPLETED"]
    assert len(slower.runs()) == 2
    assert slower.left_overs() == []
    slower.until_no_process_is_left()


def test_killed_its_jobs_may_end_and_are_not_measured_again(slow, cluster):
    workflow, job = started(slow)
    workflow.kill()
    workflow.wait()
    slow.snakemake("-n")  # which leaves them alone
    until(lambda: not cluster.jobs(), "the end of all jobs", END_S)
    assert state_of(cluster, job) == "COMPLETED"
    assert job["run"] in slow.runs()
    slow.snakemake("--unlock")
    assert job["run"] not in slow.measured_by()
    slow.until_no_process_is_left()
