"""A whole small study on one NVIDIA GPU, and a server killed on it; without a GPU, `make gpu-rehearsal` has doubles."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from engines.conftest import Installed
from gpu.conftest import Gpu
from patience import until
from workflow.workspace import Workspace

from servelab.core.identity import content_id, lock_sha256
from servelab.engines.adapters import ENGINES
from servelab.machine.lease import lease

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results/gpu-test/study"
"""The study's report and tables, for whoever ran it."""
SLOTS = 4
ON_THE_GPU = {"--gpu-layers": 99}
TOO_LARGE = "cache of twice the GPU's memory"


def source(gpu: Gpu) -> dict[str, str]:
    """Where the model is, as a study names it."""
    return {"kind": "path", "path": str(gpu.model), "revision": "1"}


def study(gpu: Gpu) -> dict:
    """Layers on the GPU or not, more sequences, and a candidate that cannot fit into the GPU's memory."""
    tokens = 2 * (gpu.device.memory_bytes or 0) // gpu.shape.cache_bytes_per_token
    return {
        "study": "gpu",
        "title": "Random weights on one GPU",
        "model": {"id": "random-llama", "format": "gguf", "source": source(gpu)},
        "hardware": {"accelerator": gpu.device.name, "device": "nvidia", "per_node": 1},
        "engines": {"llama.cpp": {"version": gpu.version, "lock": "envs/llama.cpp-gpu.lock.txt"}},
        "objective": {"metric": "total_tokens_per_s", "on": "gpu-short", "margin_percent": gpu.margin_percent},
        "protocol": {
            "warmup_requests": 2,
            "rounds": 2,
            "startup_timeout_s": 300,
            "round_timeout_s": 300,
            "max_others_cpu_percent": 100,  # whether it works is asked here, not how fast
        },
        "search": {"strategy": "staged"},
        "baseline": {
            "engine": "llama.cpp",
            "options": {"context_length": 1024, "max_num_seqs": SLOTS},
            "arguments": ON_THE_GPU,
        },
        "stages": [
            {"name": "layers", "candidates": [{"label": "all layers on the CPU", "arguments": {"--gpu-layers": 0}}]},
            {
                "name": "cache",
                "candidates": [
                    {"label": "16 sequences", "options": {"max_num_seqs": 16}},
                    {"label": TOO_LARGE, "options": {"context_length": tokens // SLOTS}},
                ],
            },
        ],
        "workloads": list(gpu.loads),
    }


@pytest.fixture(scope="module")
def finished(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The study, run to its end; its report is kept in `results/gpu-test/study`."""
    workspace = Workspace.create(tmp_path_factory.mktemp("study") / "workspace")
    loads = {name: {"title": name, "kind": "random", "parameters": load} for name, load in gpu.loads.items()}
    workspace.write("config/workloads.yaml", yaml.safe_dump(loads))
    shutil.copy2(gpu.lock, workspace.folder / "envs/llama.cpp-gpu.lock.txt")
    workspace.write_study(study(gpu))
    workspace.write("config/config.yaml", "studies: [gpu]\n")
    print(workspace.snakemake())
    shutil.rmtree(KEPT, ignore_errors=True)
    shutil.copytree(workspace.folder / "results/studies/gpu", KEPT)
    return workspace


def manifests(workspace: Workspace) -> dict[Path, dict]:
    """The manifest of each run that has one, by its folder."""
    found = sorted(workspace.folder.glob("results/runs/*/manifest.json"))
    return {path.parent: json.loads(path.read_text()) for path in found}


def test_every_run_is_on_the_gpu(finished, gpu):
    assert manifests(finished)
    for manifest in manifests(finished).values():
        assert [device["name"] for device in manifest["devices"]] == [gpu.device.name]
        assert manifest["devices"][0]["settings"]["runtime"].startswith("CUDA ")
        assert [device["key"] for device in manifest["placement"]["devices"]] == [gpu.device.key]
        assert manifest["environment_variables"]["CUDA_VISIBLE_DEVICES"] == gpu.device.index


def test_nvml_is_sampled_under_load(finished, gpu):
    used = 0.0
    for folder in manifests(finished):
        if json.loads((folder / "status.json").read_text())["outcome"] != "ok":
            continue
        rows = pq.read_table(folder / "telemetry.parquet").to_pandas()
        rows = rows[rows["source"] == "nvml"]
        values = {name: part["value"] for name, part in rows.groupby("metric")}
        assert {"power_w", "energy_j_total", "clock_sm_mhz", "gpu_utilization_percent"} <= set(values)
        assert values["power_w"].gt(0).all() and values["energy_j_total"].is_monotonic_increasing
        used = max(used, values["memory_used_bytes"].max())
    assert used > gpu.model.stat().st_size


def test_energy_per_token_is_known(finished):
    rounds = pq.read_table(finished.folder / "results/studies/gpu/stages/cache/rounds.parquet").to_pandas()
    for metric in ("energy_per_output_token_j", "mean_power_w"):
        values = rounds[rounds["metric"] == metric]
        assert len(values) and values["value"].gt(0).all()


def test_out_of_memory_is_a_result(finished):
    rows = pq.read_table(finished.folder / "results/studies/gpu/stages/cache/table.parquet").to_pandas()
    statuses = [json.loads(path.read_text()) for path in finished.folder.glob("results/runs/*/status.json")]
    assert {status["reason"] for status in statuses if status["outcome"] != "ok"} == {"out_of_memory"}
    assert TOO_LARGE in set(rows["candidate"])


def test_the_study_ends_with_a_recommendation_and_a_report(finished):
    folder = finished.folder / "results/studies/gpu"
    assert json.loads((folder / "recommended.json").read_text())["command"]
    assert TOO_LARGE.split()[0] in (folder / "report.html").read_text()


def test_a_killed_server_gives_its_memory_back(finished, gpu, tmp_path):
    """The device is reserved as long as the server lives, and shown to it alone; the kill leaves nothing on it."""
    environments = list((finished.folder / "results/envs").glob("llama.cpp-*/environment.json"))
    lock_of = {json.loads(path.read_text())["lock_sha256"]: path for path in environments}
    installed = Installed(
        ENGINES.get("llama.cpp"),
        lock_of[lock_sha256(gpu.lock)],
        finished.folder / "results/models" / content_id(source(gpu)) / "model.json",
        ON_THE_GPU,
    )
    before = gpu.memory_used()
    with lease("nvidia", 1) as leased:
        server = installed.server(
            tmp_path / "server.log", variables=leased.environment, keep_open=leased.descriptors, options={}
        )
        try:
            server.start()
            children = psutil.Process(server.pid).children(recursive=True)
            environ = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
            assert f"CUDA_VISIBLE_DEVICES={gpu.device.index}".encode() in environ
            assert gpu.memory_used() - before > gpu.model.stat().st_size
            for process in (psutil.Process(server.pid), *children):
                os.kill(process.pid, signal.SIGKILL)
            until(lambda: server.process.poll() is not None, "the server's end")
            # The driver's own share may stay: a small part of what the model takes.
            until(lambda: gpu.memory_used() - before < gpu.model.stat().st_size / 4, "the GPU's memory")
        finally:
            server.stop()
    with lease("nvidia", 1) as again:
        assert [device.key for device in again.devices] == [gpu.device.key]
