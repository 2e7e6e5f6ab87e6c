"""A node with faults, beside one without: no run is lost on it, no candidate loses by it, and both are said."""

import shutil

import pytest
from slurm.conftest import SlurmWorkspace, gpu_study, slurm_with

from servelab.search.project import load_project

pytestmark = pytest.mark.slurm
NVIDIA_SMI = """\
name="NVIDIA H100 80GB HBM3"
for i in 0 1 2 3 4 5 6 7; do
  uuid=GPU-$SLURMD_NODENAME-000$i; ecc=0; mode=Default; used=0
  [ "$SLURMD_NODENAME" = gpu1 ] && [ $i -lt 4 ] &&
    case $(( SLURM_JOB_ID % 3 )) in 0) ecc=7 ;; 1) mode=Prohibited ;; 2) used=60000 ;; esac
  case "$1" in
    --query-gpu=index,uuid,name,driver_version,memory.total) echo "$i, $uuid, $name, 570.86.10, 81559" ;;
    --query-gpu=uuid,memory.used*) echo "$uuid, $used, 81559, $mode, $ecc, Disabled, 9.0" ;;
    *) exit 2 ;;
  esac
done"""
"""The driver's tool: who has the first four devices of gpu1 finds a fault before the server starts."""
LINES = [
    "CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    "CUDA error: system not yet initialized (Error 802)",
    "CUDA error: no kernel image is available for execution on the device",
    "OSError: [Errno 28] No space left on device: '/root/.cache'",
]
PLANTED = f"""

import os, pathlib

pid, node = os.getppid(), b""
while pid > 1 and not node:
    set_there = pathlib.Path(f"/proc/{{pid}}/environ").read_bytes().split(b"\\0")
    node = b"".join(line for line in set_there if line.startswith(b"SLURMD_NODENAME="))
    pid = int(pathlib.Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])
if node.endswith(b"gpu1"):
    lines = {LINES}
    with pathlib.Path(__file__).with_name("starts").open("a") as starts:
        starts.write(".")
        print(lines[starts.tell() % len(lines)], flush=True)
    os._exit(1)
"""
"""A server that starts on gpu1, on its last four devices, ends with the next line."""


@pytest.fixture
def pair():
    """A Slurm of two nodes with 8 GPUs each."""
    with slurm_with(NVIDIA_SMI, {"gpu1": "gpu:h100", "gpu2": "gpu:h100"}) as cluster:
        yield cluster


def test_a_study_ends_as_if_the_bad_node_did_not_exist(pair, tmp_path):
    workspace = SlurmWorkspace.on(pair, tmp_path / "workspace", [gpu_study(candidates=8)])
    project = load_project(workspace.folder / "config/studies/gpus.yaml", workspace.folder)
    environment = f"results/envs/llama.cpp-{project.environment_sha256('llama.cpp')[:12]}"
    workspace.snakemake("--", f"{environment}/environment.json")
    envs = workspace.folder / "results/envs"
    shared = envs.resolve()
    envs.unlink()
    shutil.copytree(shared, envs, symlinks=True, ignore=lambda _, names: [n for n in names if n.startswith("vllm-")])
    (module,) = (workspace.folder / environment).glob("venv/lib/python*/site-packages/xllamacpp/__init__.py")
    module.write_text(module.read_text() + PLANTED)
    output = workspace.snakemake()
    jobs = [job for job in pair.jobs("all") if job["run"] in workspace.runs()]
    lost = [job for job in jobs if job["state"] == "FAILED"]
    assert {job["node"] for job in lost} == {"gpu1"}
    assert {job["node"] for job in jobs if job not in lost} == {"gpu2"}
    outcomes = [workspace.json(f"results/runs/{run}/status.json")["outcome"] for run in workspace.runs()]
    assert outcomes == ["ok"] * 9
    assert output.count(", not on gpu1") == 2 * len(lost)  # as it is queued, and as it ends
    assert output.count("FAILED: measure") == output.count("To mend it: ") == len(lost)
    assert 0 < output.count("(seen before the start)") < len(lost)
