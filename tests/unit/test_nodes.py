"""A server over several nodes: its commands, what is refused before anything starts, and the agents."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import made_run
import psutil
import pytest
import yaml
from made_study import ROOT, demo_study
from patience import until

from servelab.core.errors import ConfigError, Outage
from servelab.core.identity import run_id
from servelab.core.run_spec import HardwareSpec
from servelab.engines.adapters import ENGINES
from servelab.engines.server_identity import render_served, serve_of
from servelab.machine.device_names import WantedDevices
from servelab.machine.devices import DEVICES
from servelab.measure.nodes import OtherNode
from servelab.search.project import load_project
from servelab.workflow.placement import Placements

ABLE = ["sglang", "vllm"]
SPLIT = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}


@pytest.mark.parametrize("name", ENGINES.names())
def test_each_node_has_its_command_or_the_engine_is_refused(name):
    engine = ENGINES.get(name)
    if name not in ABLE:
        with pytest.raises(ConfigError, match=f"{name} serves on one node only here; {', '.join(ABLE)} can"):
            engine.check_nodes("1.0")
        return
    engine.check_nodes(engine.checked[-1].release)
    one = render_served(engine, serve_of(engine, "m", SPLIT, {}, 16), "host", "nvidia")
    two = render_served(engine, serve_of(engine, "m", SPLIT, {}, 16, 2), "host", "nvidia")
    assert "other_nodes" not in one.model_dump() and "node0" not in " ".join(one.command)
    (other,) = two.other_nodes
    assert [command[command.index("--node-rank") + 1] for command in (two.command, other)] == ["0", "1"]
    assert all({"--nnodes", "127.0.0.1"} <= {*command} for command in (two.command, other))
    assert "0.0.0.0" not in [*two.command, *other]
    assert any(word.startswith("node0") for word in other)


def study(folder: Path, *, engine=None, hardware=None, baseline=None) -> Path:
    """A study of two nodes with some keys changed."""
    content = demo_study() | {
        "study": "s",
        "hardware": {"accelerator": "NVIDIA H100", "device": "nvidia", "per_node": 8, "nodes": 2, **(hardware or {})},
        "engines": {
            "it": {"engine": "vllm", "version": "0.17.1", "lock": "envs/vllm-0.17.1.lock.txt", **(engine or {})}
        },
        "baseline": {"engine": "it", "accelerators": 16, **(baseline or {})},
        "stages": [{"name": "sequences", "candidates": [{"options": {"max_num_seqs": 8}}]}],
    }
    (folder / "s.yaml").write_text(yaml.safe_dump(content))
    return folder / "s.yaml"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": {"version": "0.11.0"}}, "hardware.nodes: engine vllm 0.11.0 serves on one node only here; 0.17.1"),
        ({"engine": {"engine": "llama.cpp"}}, "hardware.nodes: engine llama.cpp serves on one node only here"),
        ({"engine": {"runtime": "apptainer"}}, "engines.it.runtime: `apptainer` starts a server on one node only"),
        ({"engine": {"runtime": "docker"}}, "engines.it.runtime: `docker` starts a server on one node only"),
        ({"baseline": {"accelerators": 3}}, "baseline.accelerators: 3 is no multiple of hardware.nodes, 2"),
        ({"baseline": {"accelerators": None}}, "baseline.accelerators: 1 is no multiple of hardware.nodes, 2"),
        ({"baseline": {"accelerators": 18}}, "18 is more than the 8 of hardware.per_node × 2 nodes"),
        ({"hardware": {"nodes": 0}}, "hardware.nodes"),
    ],
)
def test_what_does_not_fit_several_nodes_is_refused(changes, message, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_project(study(tmp_path, **changes), ROOT)
    assert message in str(caught.value)


def test_only_slurm_gives_several_nodes(tmp_path):
    project = load_project(study(tmp_path), ROOT)
    placements = Placements.__new__(Placements)
    placements._cluster = None
    placements._workflow = SimpleNamespace(executor_plugin=SimpleNamespace(name="local"), is_main_process=True)
    with pytest.raises(ConfigError, match="only a job of Slurm is given 2 nodes"):
        placements.check_nodes({"s": project})
    placements._cluster, placements._workflow.executor_plugin.name = object(), "slurm"
    placements.check_nodes({"s": project})


def test_the_number_of_nodes_is_in_a_runs_identity_where_it_is_not_one():
    spec = made_run.spec()
    assert "nodes" not in spec.model_dump(mode="json")["hardware"]
    hardware = HardwareSpec(accelerator="cpu", device="cpu", count=2)
    ids = {run_id(spec.model_copy(update={"hardware": hardware.model_copy(update={"nodes": n})})) for n in (1, 2)}
    assert len(ids) == 2


class Beside:
    """A batch system whose other node is this machine."""

    def address(self, node):
        return "127.0.0.1"

    def on_node(self, node, command):
        return list(command), dict(os.environ)


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    made = OtherNode(Beside(), "n2")
    yield made
    made.close()


def started(node, log: Path) -> psutil.Process:
    """A part that runs until it is ended."""
    node.start([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"], {}, log)
    return psutil.Process(int(until(lambda: log.exists() and log.read_text().strip(), "its part")))


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_an_agent_runs_a_part_and_nothing_outlives_it(node, tmp_path):
    node.reserve(WantedDevices(DEVICES.get("cpu"), ["cpu"], {}), 1)
    _, used = node.use(1)
    assert len(used.devices) == 1 and node.interface == "lo" and node.port() in range(20000, 22000)
    part = started(node, tmp_path / "1")
    assert node.poll() is None
    part.kill()
    assert until(lambda: node.poll(), "the part's end") == -9
    part = started(node, tmp_path / "2")
    node.stop()
    assert ended(part)
    part = started(node, tmp_path / "3")
    psutil.Process(node._step.pid).kill()
    until(lambda: ended(part), "the part's end")
    with pytest.raises(Outage, match="node n2: its agent has ended"):
        node.poll()


def test_an_agent_ends_with_the_process_that_asked(node, tmp_path):
    node.reserve(WantedDevices(DEVICES.get("cpu"), ["cpu"], {}), 1)
    node.use(1)
    part = started(node, tmp_path / "log")
    node._step.stdin.close()  # as if it was killed
    assert node._step.wait(60) == Outage.exit_code
    assert ended(part)
