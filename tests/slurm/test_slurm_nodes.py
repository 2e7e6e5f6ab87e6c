"""One server over two nodes: devices on both, and nothing left on either, whichever part is killed.

The second node is a host of its own as far as the network is concerned. The servers are process doubles; Slurm, the
agents and everything else are real.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from engines import jobs
from engines.conftest import double
from patience import until
from slurm.cluster import Cluster, Network
from slurm.conftest import H100, NVIDIA_SMI, SITE, SlurmWorkspace, slurm_with, study
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel

from servelab.core.run_spec import RunSpec
from servelab.engines.server_identity import render_served, serve_of
from servelab.machine.lease import try_lock
from servelab.measure.inputs import JobRun
from servelab.measure.run_files import RunManifest
from servelab.metrics.tables import schemas

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[2]
NODES = ["two1", "two2"]


@pytest.fixture(scope="module")
def two():
    """A Slurm of two nodes with 8 GPUs each."""
    if os.getuid() != 0 or not shutil.which("ip"):
        pytest.skip("only root can make a network for the second node, with `ip`")
    network = Network(NODES)
    try:
        with slurm_with(NVIDIA_SMI, dict.fromkeys(NODES, "gpu:h100"), network) as cluster:
            cluster.network = network
            yield cluster
    finally:
        network.remove()


@pytest.fixture(scope="module")
def requests_path(tmp_path_factory):
    """Requests that keep a double busy for about ten seconds: also on a busy machine, each job is seen under load."""
    draw, rows = Random(0), []
    for index in range(200):
        ids = [draw.randrange(1000, 40000) for _ in range(16)]
        rows.append({"request_index": index, "phase": "measured", "prompt": None, "prompt_token_ids": ids})
        rows[-1] |= {"input_tokens": 16, "output_tokens": 40}
    path = tmp_path_factory.mktemp("requests") / "requests.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schemas.WORKLOAD_REQUESTS), path)
    return path


@dataclass
class Measuring:
    """A job of Slurm that measures a run on two nodes."""

    cluster: Cluster
    folder: Path
    run: JobRun
    id: str

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def measure(self) -> psutil.Process | None:
        """The measuring process, on the first node."""
        return _process(
            "scripts/measure.py", lambda process: any(f"{self.folder}/" in each for each in process.cmdline())
        )

    @property
    def agent(self) -> psutil.Process | None:
        """The agent on the second node."""
        return _process("servelab.measure.node_agent", self._is_of_job)

    def _is_of_job(self, process: psutil.Process) -> bool:
        """Clusters of other tests have jobs with the same numbers, but none on two nodes."""
        return process.environ().get("SLURM_JOB_ID") == self.id

    def parts(self) -> list[psutil.Process]:
        """The server's own process on each node, once there is load on it."""
        measure, agent = self.measure, self.agent
        if not (measure and agent and _below(measure, "servelab.measure.load")):
            return []
        return [*_served(measure), *_served(agent)]

    def status(self):
        return jobs.status(self.folder / "runs", self.run)

    def has_ended(self) -> bool:
        return self.id not in [job["id"] for job in self.cluster.jobs()]


def _process(text: str, is_wanted: Callable[[psutil.Process], bool]) -> psutil.Process | None:
    """The process of Python with this word in its command line that is the wanted one."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[:1] == [sys.executable] and text in words and is_wanted(process):
                return process
    return None


def _below(process: psutil.Process, text: str) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.Error):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if text in " ".join(child.cmdline()):
                    found.append(child)
    return found


def _served(process: psutil.Process) -> list[psutil.Process]:
    """What the warden of a server below a process started."""
    wardens = [
        each for each in _below(process, "core/warden.py") if "servelab.measure.load.sender" not in each.cmdline()
    ]
    return [child for warden in wardens for child in warden.children()]


def submit(two, installed, requests_path, folder, **changes) -> Measuring:
    """Submits a run of a double on two GPUs of each node."""
    options = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    limits = {"warmup_requests": 0, "round_timeout_s": 120, "startup_timeout_s": 60}
    spec = installed.spec(options=options, device="nvidia", **limits, **changes)
    serve = serve_of(installed.engine, spec.model.id, options, installed.arguments, 4, 2)
    content = spec.model_dump()
    content["served"] = render_served(installed.engine, serve, "host", "nvidia").model_dump()
    content["hardware"] = {"accelerator": H100, "device": "nvidia", "count": 4, "nodes": 2}
    run = installed.run(RunSpec.model_validate(content), requests_path)
    folder.mkdir()
    script = folder / "job.sh"
    command = jobs.command(folder / "runs", [run])
    script.write_text(f"#!/bin/bash\nexec {shlex.join(command)}\n")
    variables = {"PATH": f"{two.bin}:{os.environ['PATH']}", "SERVELAB_LOCKS": str(two.folder)}
    export = ",".join(["ALL", *(f"{name}={value}" for name, value in variables.items())])
    asked = ["--nodes=2", "--gres=gpu:h100:2", "--cpus-per-task=4", "--mem=4000", "--partition=two"]
    said = two.ask(
        "sbatch", "--parsable", *asked, f"--chdir={ROOT}", f"--output={folder}/log", f"--export={export}", str(script)
    )
    return Measuring(two, folder, run, said.strip())


RELEASES = ("vllm-0.17.1", "sglang-0.5.9")
WAYS = {
    "the first node's server": lambda running: running.parts[0].kill(),
    "the second node's part": lambda running: running.parts[1].kill(),
    "the second node's agent": lambda running: running.agent.kill(),
    "the measuring process": lambda running: running.measure.kill(),
    "the job": lambda running: running.job.cluster.ask("scancel", running.job.id),
}
SURVIVED = ("the first node's server", "the second node's part")
"""Killed once from outside: the load gets another start."""
CASES = [
    *((RELEASES[0], way) for way in WAYS),
    (RELEASES[1], "the second node's part"),
    (RELEASES[1], "the measuring process"),
]


@dataclass
class Running:
    """A job whose server has load on both nodes."""

    job: Measuring
    measure: psutil.Process
    agent: psutil.Process
    parts: list[psutil.Process]
    tree: list[psutil.Process]
    listens: dict[str, set[str]]
    """Addresses on which each node's part listens."""


def running(job: Measuring) -> Running | None:
    try:
        measure, agent, parts = job.measure, job.agent, job.parts()
        if len(parts) != 2:
            return None
        tree = [each for root in (measure, agent) for each in [root, *root.children(recursive=True)]]
        listens = {node: _listens(part) for node, part in zip(NODES, parts, strict=True)}
    except psutil.NoSuchProcess:  # one that ends just now: it is looked at again
        return None
    return Running(job, measure, agent, parts, tree, listens)


def _listens(root: psutil.Process) -> set[str]:
    found = set()
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            connections = process.net_connections("tcp4")
            found |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    return found


def free(key: str) -> bool:
    lock = try_lock(key)
    if lock is not None:
        lock.close()
    return lock is not None


@pytest.fixture(scope="module")
def measured(two, requests_path, tmp_path_factory):
    """A run of each engine, and one for each part that is killed under load: as many at once as there are devices."""
    folder = tmp_path_factory.mktemp("nodes")
    installed = {release: double(release, tmp_path_factory.mktemp("double")) for release in RELEASES}
    cases = [*((release, None) for release in RELEASES), *CASES]
    of = {
        case: submit(two, installed[case[0]], requests_path, folder / str(number), start=f"search-{number}")
        for number, case in enumerate(cases)
    }
    seen: dict[tuple[str, str | None], Running] = {}

    def all_ended():
        states = {job["id"]: job["state"] for job in two.jobs()}
        for case, job in of.items():  # to look at one takes a while, so only at those that run
            if case not in seen and states.get(job.id) == "RUNNING" and (found := running(job)):
                seen[case] = found
                if case[1]:
                    WAYS[case[1]](found)
        return not states

    until(all_ended, "the end of all jobs", 300)
    assert seen.keys() == of.keys(), [job.log for case, job in of.items() if case not in seen]
    return seen


@pytest.mark.parametrize("release", RELEASES)
def test_a_server_over_two_nodes_has_devices_on_both(release, two, measured):
    seen = measured[release, None]
    folder = jobs.folder(seen.job.folder / "runs", seen.job.run)
    assert seen.job.status()["outcome"] == "ok", seen.job.log
    manifest = RunManifest.read(folder / "manifest.json")
    (other,) = manifest.other_nodes
    assert [node.placement.batch.node for node in (manifest, other)] == NODES
    for node, name in ((manifest, "two1"), (other, "two2")):
        indices = [device.index for device in node.placement.devices]
        assert [device.key for device in node.placement.devices] == [f"GPU-{name}-000{index}" for index in indices]
        assert len(node.devices) == 2
        assert node.environment_variables["CUDA_VISIBLE_DEVICES"] == ",".join(indices)
    assert "198.18." not in (folder / "manifest.json").read_text()
    assert {log.name for log in folder.glob("*.log")} == {"server.log", "server-node1.log"}
    assert (folder / "server-node1.log").read_text().startswith("=== ")
    assert seen.job.status()["accelerator_s"] > 4 * seen.job.status()["load_s"]
    assert seen.listens["two1"] == {"127.0.0.1"}  # they met before: it is no longer listened for others there
    assert seen.listens["two2"] <= {"127.0.0.1"}


@pytest.mark.parametrize(("release", "way"), CASES)
def test_whichever_part_is_killed_nothing_is_left_on_either_node(release, way, measured):
    seen = measured[release, way]
    output = jobs.folder(seen.job.folder / "runs", seen.job.run)
    alive = lambda: [p for p in seen.tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]  # noqa: E731
    until(lambda: not alive(), f"the end of {[process.pid for process in seen.tree]}")
    if way in SURVIVED:
        status = seen.job.status()
        assert (status["outcome"], status["attempts"]) == ("ok", 2), seen.job.log
        assert f"part on node two2 ended: signal {signal.SIGKILL:d}" in seen.job.log or way != SURVIVED[1]
    else:
        assert not output.exists()
        assert not list(output.parent.glob("[0-9a-f]*"))
    if way == "the second node's agent":
        assert "error: node two2: its agent has ended" in seen.job.log


def test_every_device_of_both_nodes_is_free_in_the_end(two, measured, monkeypatch):
    monkeypatch.setenv("SERVELAB_LOCKS", str(two.folder))
    until(lambda: all(free(f"GPU-{node}-000{index}") for node in NODES for index in range(8)), "all devices to be free")


def test_a_study_asks_slurm_for_two_nodes(two, tmp_path):
    """The workflow itself: what its jobs ask for, and what they give."""
    vocabulary = {sign: number for number, sign in enumerate(sorted(ByteLevel.alphabet()))}
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"\x02" + 7 * b"\0" + b"{}")
    Tokenizer(models.BPE(vocab=vocabulary, merges=[])).save(str(model / "tokenizer.json"))
    double("vllm-0.17.1", tmp_path)
    hardware = {"accelerator": H100, "device": "nvidia", "per_node": 8, "nodes": 2}
    split = {"threads": None, "tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    content = study("twins", hardware, {"accelerators": 8, "options": split}, [{"options": {"max_num_seqs": 2}}])
    content["model"] = {"id": "m", "source": {"kind": "path", "path": str(model), "revision": "1"}}
    content["engines"] = {"vllm": {"version": "0.17.1", "runtime": "host", "lock": "envs/vllm-double.host.yaml"}}
    content["baseline"]["engine"] = "vllm"
    workspace = SlurmWorkspace.on(two, tmp_path / "workspace", [content])
    for name in ("envs", "models"):  # the double's are in a folder of this test
        (workspace.folder / "results" / name).unlink()
    shutil.copy2(tmp_path / "vllm-0.17.1.host.yaml", workspace.folder / "envs/vllm-double.host.yaml")
    place = SITE["accelerators"][H100] | {"partition": "two", "memory_gb": 0.5}
    workspace.write("config/sites/loopback.yaml", yaml.safe_dump({"site": "loopback", "accelerators": {H100: place}}))
    before = len(two.submitted())
    workspace.snakemake("results/studies/twins/stages/sequences/decision.json")
    asked = [arguments for arguments, comment in two.submitted()[before:] if comment.startswith("rule_measure_")]
    assert len(asked) == 2
    for arguments in asked:
        assert {"--nodes=2", "--gres=gpu:h100:4", "--cpus-per-task=8"} <= {*arguments}
    for run in workspace.runs():
        assert workspace.json(f"results/runs/{run}/status.json")["outcome"] == "ok"
        assert workspace.spec(run)["hardware"] == {"accelerator": H100, "device": "nvidia", "count": 8, "nodes": 2}
    workspace.until_no_process_is_left()
