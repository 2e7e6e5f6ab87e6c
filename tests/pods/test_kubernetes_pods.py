"""Studies as pods: the job specs of Snakemake's own executor, sent to a stub of Kubernetes' API and run as it would."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pods.stub_cluster import StubCluster
from slurm.conftest import ASCEND, H100, NPU_SMI, NVIDIA_SMI, gpu_study, npu_study
from workflow.workspace import ROOT, Workspace

pytestmark = pytest.mark.slow
SITE = {
    "site": "pods",
    "accelerators": {
        H100: {"cpus": 12, "memory_gb": 100, "gpu_manufacturer": "nvidia", "machine_type": "eight-h100"},
        ASCEND: {"cpus": 24, "memory_gb": 128},
    },
}
NPUS = list(yaml.safe_load_all((ROOT / "profiles/kubernetes/npus.yaml").read_text()))


def pinned(lock):
    """Blocks of a lock by their first line, which names package and version."""
    blocks = re.split(r"^(?=\w)", (ROOT / f"envs/{lock}.lock.txt").read_text(), flags=re.MULTILINE)[1:]
    return {block.splitlines()[0]: block for block in blocks}


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    """A folder with what the lock for Kubernetes has beyond the workflow's own."""
    if shutil.which("rsync") is None:
        pytest.skip("not installed: rsync, which Snakemake's storage plugin runs")
    ours, folder = pinned("workflow"), tmp_path_factory.mktemp("plugin")
    lock = folder / "lock.txt"
    lock.write_text("".join(block for name, block in pinned("kubernetes").items() if name not in ours))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*install, "--target", folder / "packages", "-r", lock], check=True)
    return folder / "packages"


class Pods:
    """A checkout on a machine that can reach the cluster, and a volume that it shares with the cluster's pods."""

    def __init__(self, folder, plugin):
        self.workspace = Workspace.create(folder / "checkout")
        self.volume = folder / "volume"
        self.volume.mkdir()
        (self.workspace.folder / "results").rename(self.volume / "results")
        for study in (gpu_study(candidates=1), npu_study()):
            self.workspace.write_study(study)
        (self.workspace.folder / "config/sites").mkdir(exist_ok=True)
        self.workspace.write("config/sites/pods.yaml", yaml.safe_dump(SITE))
        for command in (["git", "init", "--quiet"], ["git", "add", "--all"]):
            subprocess.run(command, cwd=self.workspace.folder, check=True)
        tools = folder / "tools"
        tools.mkdir()
        for name, script in {"nvidia-smi": NVIDIA_SMI, "npu-smi": NPU_SMI}.items():
            (tools / name).write_text(f"#!/bin/sh\n{script}\n")
            (tools / name).chmod(0o755)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        image = os.environ | {"PATH": path, "SERVELAB_LOCKS": str(folder)}
        self.cluster = StubCluster(folder / "pods", image, [each for each in NPUS if each["kind"] == "LimitRange"])
        self.plugin = plugin

    def run(self, study, *arguments, results=None):
        """Runs a study as a pod, and gives what the command returned and printed, and the name of the job."""
        before = set(self.cluster.sent)
        environment = self.workspace.environment()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "snakemake", "--workflow-profile", "profiles/kubernetes"),
                *("--kubernetes-persistent-volumes", f"servelab:{self.volume}"),
                *("--default-storage-prefix", f"{self.volume}/pods", "--seconds-between-status-checks", "1"),
                *("--config", f"studies=[{study}]", "site=pods", f"results={results or self.volume / 'results'}"),
                *arguments,
            ],
            cwd=self.workspace.folder,
            env=environment
            | {
                "KUBECONFIG": str(self.cluster.kubeconfig),
                "PYTHONPATH": f"{environment['PYTHONPATH']}:{self.plugin}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        (job,) = set(self.cluster.sent) - before or {None}
        return done.returncode, done.stdout, job

    def manifests(self, accelerator):
        """Manifests of the runs on an accelerator, and how they ended."""
        runs = [path.parent for path in self.volume.glob("results/runs/*/spec.json")]
        read = {run: {name: yaml.safe_load((run / f"{name}.json").read_text()) for name in FILES} for run in runs}
        return [each for each in read.values() if each["spec"]["hardware"]["accelerator"] == accelerator]


FILES = ("spec", "manifest", "status")


@pytest.fixture(scope="module")
def pods(plugin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kubernetes")
    (folder / "pods").mkdir()
    pods = Pods(folder, plugin)
    with pods.cluster:
        yield pods


@pytest.fixture(scope="module")
def gpus(pods):
    """The job of a study on GPUs, which has ended."""
    returncode, output, job = pods.run("gpus")
    assert returncode == 0, output[-3000:] + (pods.cluster.log(job)[-3000:] if job else "")
    return pods.cluster.admitted[job]


@pytest.fixture(scope="module")
def npus(pods):
    """The job of a study on NPUs, which has ended."""
    returncode, output, job = pods.run("npus", "--kubernetes-namespace", "servelab-npus")
    assert returncode == 0, output[-3000:] + (pods.cluster.log(job)[-3000:] if job else "")
    return pods.cluster.admitted[job]


def container(job):
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container


def test_gpus_are_a_limit(gpus):
    assert container(gpus)["resources"] == {
        name: {"cpu": "96000m", "memory": "800000M", "ephemeral-storage": "20000M", "nvidia.com/gpu": "8"}
        for name in ("requests", "limits")
    }
    pod = gpus["spec"]["template"]["spec"]
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["nvidia.com/gpu"]
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "eight-h100"}


def test_npus_are_a_limit_of_the_namespace(npus, pods):
    """The executor cannot ask for them; what it sends leaves the place free for the namespace's own limit."""
    sent = container(pods.cluster.sent[npus["metadata"]["name"]])["resources"]
    assert {name: sorted(sent[name]) for name in sent} == {
        name: ["cpu", "ephemeral-storage", "memory"] for name in ("requests", "limits")
    }
    assert container(npus)["resources"] == {
        name: {
            "cpu": "192000m",
            "memory": "1024000M",
            "ephemeral-storage": "20000M",
            "huawei.com/Ascend910": "8",
        }
        for name in ("requests", "limits")
    }


def test_results_are_on_the_volume_and_servers_on_loopback(gpus, npus, pods):
    for job in (gpus, npus):
        pod = job["spec"]["template"]["spec"]
        claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in pod["volumes"]}
        assert claims == {"workdir": None, "servelab": {"claimName": "servelab"}}
        mounts = {mount["name"]: mount["mountPath"] for mount in container(job)["volumeMounts"]}
        assert mounts == {"workdir": "/workdir", "servelab": str(pods.volume)}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not {"ports", "securityContext"} & container(job).keys()
    for accelerator, counts in ((H100, [4, 4]), (ASCEND, [2, 8])):
        runs = pods.manifests(accelerator)
        assert [run["status"]["outcome"] for run in runs] == ["ok", "ok"]
        assert sorted(len(run["manifest"]["devices"]) for run in runs) == counts
        for run in runs:
            command = run["manifest"]["command"]
            assert command[command.index("--host") + 1] == "127.0.0.1"
    for study in ("gpus", "npus"):
        assert (pods.volume / f"results/studies/{study}/report.html").exists()


def test_a_second_pod_measures_nothing_again(gpus, pods):
    before = {path: path.stat().st_mtime_ns for path in pods.volume.glob("results/runs/*/status.json")}
    returncode, output, job = pods.run("gpus")
    assert returncode == 0, output[-3000:]
    assert job is not None
    assert {path: path.stat().st_mtime_ns for path in pods.volume.glob("results/runs/*/status.json")} == before


def test_a_pod_that_fails_ends_the_command_and_keeps_its_log(gpus, pods):
    """The executor asks for the log of a container before the failed one, and there is none."""
    returncode, output, job = pods.run("gpus", results="/proc/nowhere")
    assert returncode == 1
    assert "Kubernetes request failed" in output
    assert job not in pods.cluster.deleted
    assert "cannot be claimed" in pods.cluster.log(job)
    assert gpus["metadata"]["name"] in pods.cluster.deleted
