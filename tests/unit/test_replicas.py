"""Several servers of one configuration, before anything starts: keys, plans, devices, the node's figure."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from made_study import demo_study

from servelab.core.errors import ConfigError, Outage
from servelab.engines.balancers import BALANCERS
from servelab.machine import allocations
from servelab.machine.devices import DEVICES, Device
from servelab.machine.lease import Lease
from servelab.metrics.objective import per_basis
from servelab.search.deployment import forms
from servelab.search.planning import plan_confirm, plan_stage
from servelab.search.project import load_project
from servelab.study.configuration import Incumbent, as_searched, baseline


def project_of(tmp_path, *candidates, hardware=None, **keys):
    """The demo study with these candidates in its only stage; `keys` are parts of the study to change."""
    study = demo_study()
    for key, value in keys.items():
        study[key] = (study.get(key) or {}) | value if isinstance(value, dict) else value
    study["hardware"] |= hardware or {}
    study["stages"] = [{"name": "layout", "candidates": list(candidates) or [{"options": {"threads": 1}}]}]
    file = tmp_path / "config/studies/cpu-smollm2.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(study))
    return load_project(file, Path())


GPUS = {"device": "nvidia", "accelerator": "NVIDIA H100", "per_node": 8}


@pytest.mark.parametrize(
    ("candidate", "hardware", "said"),
    [
        ({"accelerators": 4, "replicas": 3}, GPUS, "3 servers do not fit on 4 accelerators"),
        ({"accelerators": 16, "replicas": 4}, GPUS, "16 is more than the 8 of hardware.per_node"),
        ({"balancer": "round_robbin"}, GPUS, "did you mean `round_robin`?"),
    ],
)
def test_what_does_not_fit_is_one_error(candidate, hardware, said, tmp_path):
    with pytest.raises(ConfigError, match=r"candidates\.0") as error:
        project_of(tmp_path, candidate, hardware=hardware, baseline={"accelerators": 1})
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_each_of_several_has_its_part(tmp_path):
    project = project_of(
        tmp_path, {"accelerators": 4, "replicas": 2, "balancer": "nginx"}, {"replicas": 3}, hardware=GPUS
    )
    first, two, three = plan_stage(project, "layout", baseline(project.study)).candidates
    spec = two.runs[0].spec
    assert (spec.hardware.count, spec.hardware.replicas, spec.hardware.per_server) == (4, 2, 2)
    assert spec.served.balancer.name == "nginx"
    assert "server 127.0.0.1:2 max_fails=0;" in spec.served.balancer.files["nginx.conf"]
    assert "3 servers do not fit on 1 accelerators" in three.refused
    one = first.runs[0].spec.model_dump(mode="json")
    assert "replicas" not in one["hardware"]
    assert "balancer" not in one["served"]
    assert "replicas" not in first.configuration.model_dump()


def test_devices_are_split_and_never_shared():
    devices = [Device(index=str(n), key=f"gpu{n}", name="gpu") for n in range(4)]
    lease = Lease(devices, [], DEVICES.get("nvidia"), allocations.current())
    assert [[device.index for device in part.devices] for part in lease.split(2)] == [["0", "1"], ["2", "3"]]


def test_a_machine_is_split_by_its_cores():
    kind = DEVICES.get("cpu")
    lease = Lease(kind.find(), [], kind, allocations.current())
    whole = os.sched_getaffinity(0)
    parts = lease.split(2) if len(whole) > 1 else []
    assert all(part.cpus for part in parts)
    assert sum(len(part.cpus) for part in parts) == len(frozenset().union(*(part.cpus for part in parts)))
    assert frozenset().union(*(part.cpus for part in parts)) <= whole
    with pytest.raises(Outage, match="need a core each"):
        lease.split(len(whole) + 1)


def test_a_proof_fills_the_node(tmp_path):
    """Each side is served as often as fits: no figure of the node is a product, and the search finds its row again."""
    objective = {"objective": {"per": "node", "load_per": "node"}, "proof": {"fills_node": True}}
    project = project_of(tmp_path, {"accelerators": 4}, hardware=GPUS, protocol={"max_concurrency": 36}, **objective)
    study = project.study
    start = baseline(study)
    first, candidate = plan_stage(project, "layout", start).candidates
    sides = plan_confirm(project, Incumbent(candidate="four", configuration=candidate.configuration), 3).candidates
    sent = [{run.spec.protocol.max_concurrency for run in each.runs} for each in (first, candidate, *sides)]
    assert sent == [{4}, {18}, {36}, {36}]
    assert [(side.configuration.accelerators, side.configuration.replicas) for side in sides] == [(8, 8), (8, 2)]
    assert [per_basis("node", side.configuration.accelerators, 8) for side in sides] == [(1.0, False)] * 2
    assert [as_searched(study, side.configuration) for side in sides] == [start.configuration, candidate.configuration]


def test_only_a_figure_of_the_node_asks_for_it(tmp_path):
    with pytest.raises(ConfigError, match=r"proof\.fills_node: is for `objective\.per: node`"):
        project_of(tmp_path, hardware=GPUS, proof={"fills_node": True})


IMAGE = "docker.io/vllm/vllm-openai@sha256:" + "0" * 64
DOUBLE = """#!/bin/sh
echo "$0 $CUDA_VISIBLE_DEVICES $NOTE $*" >> started
case "$*" in *8002*) until [ "$(wc -l < started)" -eq "$PROGRAMS" ]; do sleep 0.05; done; exit 3 ;; esac
exec sleep 60
"""


@pytest.mark.parametrize("balancer", BALANCERS.names())
def test_the_recommended_script_starts_all_and_ends_with_one(balancer, tmp_path):
    """A real shell runs it with doubles of the programs: the second server ends, and so does the script."""
    project = project_of(tmp_path, {"accelerators": 4, "replicas": 2, "balancer": balancer}, hardware=GPUS)
    configuration = plan_stage(project, "layout", baseline(project.study)).candidates[1].configuration
    manifest = SimpleNamespace(environment=SimpleNamespace(image=IMAGE), replicas=[SimpleNamespace(cpus=[])] * 2)
    found = forms(project.study, configuration, "NOTE='a b' vllm serve m", "--port", manifest)
    for program in ("vllm", "nginx", "vllm-router", "sglang-router"):
        (tmp_path / program).write_text(DOUBLE)
        (tmp_path / program).chmod(0o755)
    programs = 2 + BALANCERS.get(balancer).is_process
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PROGRAMS": str(programs)}
    done = subprocess.run(["bash", "-c", found["script"]], cwd=tmp_path, env=path, timeout=30, check=False)
    assert done.returncode != 0
    lines = (tmp_path / "started").read_text().splitlines()
    servers = {line.partition(" ")[2] for line in lines if line.split()[0].endswith("/vllm")}
    assert servers == {"0,1 a b serve m --port 8001", "2,3 a b serve m --port 8002"}
    in_front = [line for line in lines if not line.split()[0].endswith("/vllm")]
    assert len(lines) == programs and len(in_front) == programs - 2
    assert "#SBATCH --gres=gpu:4" in found["sbatch"]
    assert found["sbatch"].count(f"apptainer exec --nv docker://{IMAGE} env NOTE='a b' vllm") == 2
    if "compose" in found:
        services = yaml.safe_load(found["compose"])["services"]
        assert services["server1"]["environment"]["CUDA_VISIBLE_DEVICES"] == "2,3"
        assert services["server1"]["entrypoint"] == ["vllm", "serve", "m", "--port", "8002"]
    assert ("compose" in found) == (balancer not in ("vllm-router", "sglang-router"))
