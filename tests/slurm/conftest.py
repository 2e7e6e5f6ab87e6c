"""A cluster for all tests of this folder, and three small studies run on it once: on CPUs, GPUs and NPUs."""

import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml
from patience import until
from slurm.cluster import Cluster, missing_programs
from workflow.workspace import ROOT, WORKLOADS, Workspace

from servelab.core.yaml_file import read_yaml

H100, ASCEND = "NVIDIA H100 SXM", "Ascend 910B"
SITE = {
    "site": "loopback",
    "accelerators": {
        H100: {"partition": "gpu", "gres": "gpu:h100", "cpus": 2, "memory_gb": 2},
        ASCEND: {"partition": "npu", "gres": "npu:ascend910b", "cpus": 2, "memory_gb": 2},
    },
    "devices": {"cpu": {"partition": "cpu", "cpus": 2, "memory_gb": 8, "extra": "--exclusive"}},
}
SLOW = {
    f"slow-{count}-s": {
        "title": "A request a second: it lasts as long on however fast a machine",
        "kind": "random",
        "parameters": {"input_tokens": 16, "output_tokens": 4, "num_requests": count, "seed": 1},
    }
    for count in (20, 40)
}
NVIDIA_SMI = """\
case "$1" in
  --query-gpu=index,uuid,name,driver_version,memory.total) ;;
  *) exit 2 ;;
esac
for i in 0 1 2 3 4 5 6 7; do
  echo "$i, GPU-$SLURMD_NODENAME-000$i, NVIDIA H100 80GB HBM3, 570.86.10, 81559"
done"""
NPU_SMI = """\
[ "$*" = "info -m" ] || exit 2
echo "        NPU ID                         Chip ID                        Chip Logic ID                  Chip Name"
space="                              "
for i in 0 1 2 3 4 5 6 7; do
  echo "        $i${space}0${space}$i${space}Ascend 910B4"
  echo "        $i${space}1${space}-${space}Mcu"
done"""
"""Each answers the one question that devices are found by, as the vendor's tool does on a machine with 8 of them."""


class SlurmWorkspace(Workspace):
    """A copy of the project that runs its studies on the cluster."""

    cluster: Cluster

    @classmethod
    def on(cls, cluster, folder, studies):
        """A fresh copy with these studies."""
        workspace = cls.create(folder)
        workspace.cluster = cluster
        (workspace.folder / "config/sites").mkdir(exist_ok=True)
        workspace.write("config/sites/loopback.yaml", yaml.safe_dump(SITE))
        workspace.write("config/workloads.yaml", yaml.safe_dump(WORKLOADS | SLOW, sort_keys=False))
        workspace.choose(studies)
        subprocess.run(
            [sys.executable, "scripts/install_profile.py", "loopback"],
            cwd=workspace.folder,
            env=workspace.environment(),
            check=True,
        )
        return workspace

    def copy(self, folder):
        workspace = super().copy(folder)
        workspace.__class__, workspace.cluster = SlurmWorkspace, self.cluster
        return workspace

    def choose(self, studies):
        """Makes these the studies that a run of the workflow is about."""
        for study in studies:
            self.write_study(study)
        names = [study["study"] for study in studies]
        self.write("config/config.yaml", yaml.safe_dump({"studies": names}))

    def environment(self):
        environment = super().environment()
        return environment | {
            "PATH": f"{self.cluster.bin}:{environment['PATH']}",
            "XDG_CONFIG_HOME": str(self.folder / "home/.config"),  # where the profile is installed
            "SERVELAB_LOCKS": str(self.cluster.folder),  # locks of devices: none of another session on this machine
        }

    def command(self, *arguments):
        """With a look at its jobs every second; the profile's are kinder to a cluster."""
        often = str(Path(__file__).with_name("snakemake_often.py"))
        checks = ["--slurm-init-seconds-before-status-checks", "1"]
        return [sys.executable, often, "--profile", "slurm", *checks, "--latency-wait", "20", *arguments]

    def study(self, name):
        return yaml.safe_load((self.folder / f"config/studies/{name}.yaml").read_text())

    def spec(self, run):
        return self.json(f"results/runs/{run}/spec.json")

    def processes(self):
        """Processes that work in the workspace."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd().startswith(str(self.folder)) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def until_no_process_is_left(self):
        """Slurm calls a job ended while its last processes still end; none may stay."""
        try:
            until(lambda: not self.processes(), "the end of all processes")
        except AssertionError as error:
            left = [process.as_dict(["pid", "status", "cmdline"]) for process in self.processes()]
            raise AssertionError(f"{error}; left: {left}") from None

    def left_overs(self):
        """What an attempt that did not finish would leave: folders that are no whole run."""
        return [path for path in (self.folder / "results/runs").iterdir() if path.name not in self.runs()]


def study(name, hardware, baseline, candidates, workloads=("tiny",)):
    """A study of one stage, whose margin nothing passes: its path is the same in every run."""
    demo = read_yaml(ROOT / "config/studies/cpu-smollm2.yaml")
    return {
        "study": name,
        "title": name,
        "model": demo["model"],
        "hardware": hardware,
        "engines": demo["engines"],
        "objective": {"metric": "total_tokens_per_s", "on": workloads[0], "margin_percent": 1_000_000},
        "protocol": {
            "warmup_requests": 1,
            "rounds": 1,
            "startup_timeout_s": 120,
            "round_timeout_s": 240,
            "max_others_cpu_percent": 100,  # all nodes are one machine
            **({"arrivals": "constant", "request_rate": 1.0} if workloads[0] in SLOW else {}),
        },
        "search": {"strategy": "staged", "incumbent_starts": 1},
        "baseline": {"engine": "llama.cpp", "options": {"threads": 1}, **baseline},
        "stages": [{"name": "sequences", "candidates": candidates}],
        "workloads": list(workloads),
    }


def cpu_study(workloads=("tiny", "tiny-long", "tiny-sharegpt")):
    """As nothing is better, the baseline is measured on the other workloads in the end, on one server start."""
    hardware = {"accelerator": "cpu", "device": "cpu", "per_node": 1}
    return study("cpus", hardware, {}, [{"options": {"max_num_seqs": 2}}], workloads)


def gpu_study(name="gpus", candidates=3, workloads=("tiny",)):
    options = [{"options": {"max_num_seqs": count}} for count in range(1, candidates + 1)]
    hardware = {"accelerator": H100, "device": "nvidia", "per_node": 8}
    return study(name, hardware, {"accelerators": 4}, options, workloads)


def npu_study(name="npus", workloads=("tiny",)):
    hardware = {"accelerator": ASCEND, "device": "ascend", "per_node": 8}
    return study(name, hardware, {"accelerators": 2}, [{"accelerators": 8}], workloads)


@contextmanager
def slurm_with(nvidia_smi, *arguments):
    """A Slurm with these tools of the drivers on its nodes."""
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}; as root, tests/install_packages.sh installs them")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # its sockets' paths must be short
    cluster = Cluster(folder, *arguments)
    try:
        cluster.start()
        cluster.tool("nvidia-smi", nvidia_smi)
        cluster.tool("npu-smi", NPU_SMI)
        yield cluster
    finally:
        cluster.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cluster():
    """A Slurm with a node of 8 GPUs, one of 8 NPUs and one without accelerators."""
    with slurm_with(NVIDIA_SMI) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def finished(cluster, tmp_path_factory):
    """All three studies, run to their end at once. Tests change copies of it."""
    folder = tmp_path_factory.mktemp("slurm") / "workspace"
    workspace = SlurmWorkspace.on(cluster, folder, [cpu_study(), gpu_study(), npu_study()])
    earlier = [job["id"] for job in cluster.jobs("all")]
    workspace.output = workspace.snakemake()
    workspace.jobs = [job for job in cluster.jobs("all") if job["id"] not in earlier]
    return workspace


@pytest.fixture
def workspace(finished, tmp_path):
    """A copy of the finished studies to change."""
    return finished.copy(tmp_path / "copy")
