"""A site that asks for what the cluster does not have is named with Slurm's reason; its profile is found by name."""

import os
import re
import signal

import pytest
import yaml
from patience import until
from slurm.conftest import ASCEND, H100, SITE, SlurmWorkspace, gpu_study, npu_study

pytestmark = pytest.mark.slurm
FILE = "config/sites/loopback.yaml"
WITHIN_S = 200.0


def test_what_the_cluster_always_refuses_ends_the_workflow_at_once(cluster, tmp_path):
    """A partition that is unknown: its jobs would be refused three times each."""
    workspace = SlurmWorkspace.on(cluster, tmp_path / "workspace", [gpu_study(candidates=1), npu_study()])
    npu = SITE["accelerators"][ASCEND] | {"partition": "nosuch"}
    workspace.write(FILE, yaml.safe_dump(SITE | {"accelerators": SITE["accelerators"] | {ASCEND: npu}}))
    workflow = workspace.begin(log := workspace.folder / "said.log")
    assert workflow.wait(WITHIN_S) != 0
    said = log.read_text()
    assert (
        f"{FILE}: accelerators.{ASCEND}.partition: Slurm refuses a run on 2 × {ASCEND}: Invalid partition name" in said
    )
    assert "Trying to restart" not in said and cluster.jobs() == []


def test_what_the_cluster_cannot_satisfy_is_said_and_the_jobs_stay(cluster, tmp_path):
    """A partition that cannot ever start the job: PartitionConfig."""
    workspace = SlurmWorkspace.on(cluster, tmp_path / "workspace", [gpu_study(candidates=1)])
    gpu = SITE["accelerators"][H100] | {"cpus": 16}
    workspace.write(FILE, yaml.safe_dump(SITE | {"accelerators": {H100: gpu}}))
    workflow = workspace.begin(log := workspace.folder / "said.log")
    try:
        waiting = r"Slurm does not start job (\d+): PartitionConfig\. "
        job = until(lambda: re.search(waiting, log.read_text()), "the reason of the jobs that wait", WITHIN_S)[1]
        assert [each["state"] for each in cluster.jobs("PENDING") if each["id"] == job] == ["PENDING"]
        assert workflow.poll() is None
    finally:
        os.killpg(workflow.pid, signal.SIGINT)
        workflow.wait(60)
    assert len(re.findall("Slurm does not start job", log.read_text())) == 1
    until(lambda: not cluster.jobs(), "the end of all jobs")
