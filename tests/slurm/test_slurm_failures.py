"""What a cluster does to jobs: a run is measured again or reported, never lost, and what was cut off is no result."""

import contextlib

import psutil
import pytest
from patience import until
from slurm.conftest import H100, SITE, SlurmWorkspace, cpu_study, gpu_study, npu_study
from workflow.workspace import yaml

pytestmark = pytest.mark.slurm
START_S = 300.0
END_S = 900.0


@contextlib.contextmanager
def running(workspace):
    """The workflow at work; it must end by itself."""
    workflow = workspace.begin(log := workspace.folder / "said.log")
    try:
        yield workflow
    finally:
        if workflow.poll() is None:
            workflow.kill()
        workflow.wait()
        workspace.output = log.read_text()


def serving(workspace, node):
    """A job that puts load on its server on a node."""

    def job():
        found = workspace.cluster.running(node)
        log = workspace.folder / f"results/logs/measure/{found['run']}.log" if found else None
        return found if log and log.exists() and "serving " in log.read_text() else None

    return until(job, f"a run that is being served on {node}", START_S)


def of_job(workspace, job):
    """Processes of a job that work in the workspace; none is read while it ends."""
    found = []
    for process in workspace.processes():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SLURM_JOB_ID") == job["id"]:
                found.append(process)
    return found


def state_of(cluster, job):
    """The state that Slurm has a job in."""
    return next((each["state"] for each in cluster.jobs("all") if each["id"] == job["id"]), None)


def out_of_time(cluster, other):
    """Another job on gpu1, whose time limit is over now; Slurm refuses that of a job that has only just begun."""
    found = [job for job in cluster.jobs("RUNNING") if job["node"] == "gpu1" and job["id"] != other["id"]]
    return next((job for job in found if cluster.does("scontrol", "update", f"JobId={job['id']}", "EndTime=now")), None)


@contextlib.contextmanager
def whole_again(cluster):
    """A test that fails halfway leaves the cluster to the next as it was."""
    try:
        yield
    except BaseException:
        cluster.mend()
        raise


def test_whatever_ends_a_job_its_run_is_measured_in_the_end(cluster, tmp_path):
    """At once: a cancelled job, one over its time limit, a node that goes down, a daemon that dies with its node."""
    slow = ["slow-40-s"]
    studies = [gpu_study(candidates=1, workloads=slow), npu_study(workloads=slow), cpu_study(slow)]
    workspace = SlurmWorkspace.on(cluster, tmp_path / "workspace", studies)
    ended = {}
    with running(workspace) as workflow, whole_again(cluster):
        ended["CANCELLED"] = serving(workspace, "gpu1")
        cluster.ask("scancel", ended["CANCELLED"]["id"])
        ended["TIMEOUT"] = until(lambda: out_of_time(cluster, ended["CANCELLED"]), "a job out of time", START_S)
        down = serving(workspace, "npu1")
        assert of_job(workspace, down)
        cluster.ask("scontrol", "update", "NodeName=npu1", "State=DOWN", "Reason=test")
        dead = serving(workspace, "cpu1")
        cluster.kill_slurmd("cpu1")
        until(lambda: cluster.state("cpu1") == "down", "cpu1 to be given up", START_S)
        until(lambda: not of_job(workspace, down), "the end of what runs on the node that was set down", START_S)
        for job in (ended["CANCELLED"], down, dead):
            assert job["run"] not in workspace.runs()
        for state, job in ended.items():
            until(lambda job=job, state=state: state_of(cluster, job) == state, f"the end of job {job['id']}", START_S)
        cluster.mend()
        workflow.wait(END_S)
    assert workflow.returncode == 0, workspace.output[-6000:]
    statuses = {run: workspace.json(f"results/runs/{run}/status.json") for run in workspace.runs()}
    assert len(statuses) == 6
    assert {(status["outcome"], status["requests"]) for status in statuses.values()} == {("ok", 40)}
    assert workspace.left_overs() == []
    workspace.until_no_process_is_left()  # Slurm does not end what runs on a node that was set down


def test_a_job_out_of_memory_is_tried_with_what_slurm_takes_and_reported(cluster, tmp_path):
    """Slurm's own accounting ends it here; where there are cgroups, the kernel does."""
    workspace = SlurmWorkspace.on(cluster, tmp_path / "workspace", [gpu_study(candidates=1)])
    small = SITE["accelerators"][H100] | {"memory_gb": 0.01}
    workspace.write("config/sites/loopback.yaml", yaml.safe_dump(SITE | {"accelerators": {H100: small}}))
    before = {job["id"] for job in cluster.jobs("all")}  # other tests have these runs too
    cluster.ask("scontrol", "update", "PartitionName=gpu", "MaxMemPerNode=100")
    output = workspace.snakemake(check=False)
    cluster.ask("scontrol", "update", "PartitionName=gpu", "MaxMemPerNode=0")
    jobs = [job for job in cluster.jobs("all") if job["run"] in output and job["id"] not in before]
    assert sorted(job["memory"] for job in jobs) == sorted(2 * ["40M", "80M", "80M"])  # Slurm refuses 120
    assert output.count("    Slurm: ") == len(jobs), output[-3000:]
    logs = [log.read_text() for log in (workspace.folder / ".snakemake/slurm_logs").rglob("*.log")]
    assert len(logs) == len(jobs)
    assert all("Exceeded job memory limit" in log for log in logs)
    assert workspace.runs() == {}
