"""Sites: what a run asks a batch system for, and what is wrong with a site's file."""

from pathlib import Path

import pytest
import yaml

from servelab.clients import CLIENTS
from servelab.errors import ConfigError
from servelab.run_time import longest_s, pair_runtime_min, runtime_min
from servelab.site import RESOURCES, load_site
from servelab.spec import HardwareSpec, ProtocolSpec, RunSpec
from servelab.study import load_study

ROOT = Path(__file__).parents[2]
GPUS = HardwareSpec(accelerator="H100", device="nvidia", count=4)
NPUS = HardwareSpec(accelerator="910B", device="ascend", count=8)
CPU = HardwareSpec(accelerator="cpu", device="cpu", count=1)
SITE = {
    "site": "ours",
    "accelerators": {"H100": {"partition": "gpu", "gres": "gpu:h100", "cpus": 8, "memory_gb": 100.5, "qos": "long"}},
    "devices": {
        "nvidia": {"gres": "gpu", "cpus": 1, "memory_gb": 1},
        "cpu": {"cpus": 16, "memory_gb": 64, "extra": "--exclusive --nice=10", "most_runtime_min": 90},
    },
    "cheap_rules": {"partition": "small", "memory_gb": 4},
}


def write(folder, **changes):
    path = folder / "ours.yaml"
    path.write_text(yaml.safe_dump(SITE | changes))
    return path


def made_spec(**protocol):
    source = {"kind": "path", "path": "/models/m", "revision": "1"}
    content = {
        "engine": {"name": "vllm", "version": "1", "environment_sha256": "0" * 64},
        "model": {"id": "m", "variant": "base", "source": source, "format": "safetensors"},
        "hardware": GPUS.model_dump(),
        "workload": {"kind": "random", "parameters": {}, "tokenizer": source, "generator_version": "1"},
        "objective": "total_tokens_per_s",
        "client": {"name": "servelab", "version": CLIENTS.get("servelab").version},
        "protocol": protocol,
    }
    return RunSpec.model_validate(content)


def test_a_run_asks_for_what_its_accelerators_need(tmp_path):
    site = load_site(write(tmp_path), [GPUS, CPU])
    asked = site.placement(GPUS).request(GPUS, runtime_min=30, attempt=1)
    assert asked == {
        "slurm_partition": "gpu",
        "gres": "gpu:h100:4",
        "qos": "long",
        "cpus_per_task": 32,
        "mem_mb": 402000,
        "runtime": 30,
    }
    assert site.placement(CPU).request(CPU, runtime_min=91, attempt=1) == {
        "cpus_per_task": 16,
        "mem_mb": 64000,
        "runtime": 90,
        "slurm_extra": "--exclusive --nice=10",
    }
    assert site.placement(GPUS.model_copy(update={"accelerator": "A100"})).gres == "gpu"
    assert site.cheap_rules.request() == {"slurm_partition": "small", "mem_mb": 4000, "runtime": 120}


def test_every_name_that_may_be_asked_for_is_known(tmp_path):
    full = {"partition": "p", "gres": "g", "constraint": "c", "account": "a", "qos": "q", "extra": "--exclusive"}
    site = load_site(write(tmp_path, devices={"ascend": {**full, "cpus": 1, "memory_gb": 1}}), [NPUS])
    assert set(site.placement(NPUS).request(NPUS, runtime_min=1, attempt=1)) == set(RESOURCES)


def test_a_pod_asks_for_all_accelerators_of_a_node(tmp_path):
    h100 = {"cpus": 8, "memory_gb": 100.5, "gpu_manufacturer": "nvidia", "machine_type": "large"}
    site = load_site(write(tmp_path, accelerators={"H100": h100}), [GPUS, CPU])
    asked = site.placement(GPUS).pod_request(GPUS)
    assert asked == {"cpus": 32, "mem_mb": 402000, "gpu": 4, "gpu_manufacturer": "nvidia", "machine_type": "large"}
    assert site.placement(CPU).pod_request(CPU) == {"cpus": 16, "mem_mb": 64000}


def test_what_was_ended_for_want_of_memory_gets_more(tmp_path):
    placement = load_site(write(tmp_path)).placement(CPU)
    assert [placement.request(CPU, 1, attempt)["mem_mb"] for attempt in (1, 2, 3)] == [64000, 128000, 192000]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"site": "other"}, "site: `other` must be the file's name, `ours`"),
        ({"acelerators": {}}, "unknown key `acelerators`; did you mean `accelerators`?"),
        (
            {"accelerators": {}, "devices": {}},
            "accelerators: no `H100` here and no kind `nvidia` in `devices`; add one",
        ),
        ({"accelerators": {}, "devices": {"nvidai": SITE["devices"]["nvidia"]}}, "did you mean `nvidia`?"),
        ({"accelerators": {"H100": {"cpus": 1}}}, "accelerators.H100.memory_gb: `memory_gb` is missing"),
        ({"accelerators": {"H100": {"cpus": 1, "memory_gb": 1, "gres": "gpu:h100:4"}}}, "accelerators.H100.gres: "),
        (
            {"accelerators": {"H100": {"cpus": 1, "memory_gb": 1, "extra": "--qos=long"}}},
            "accelerators.H100.extra: `--qos` has a key of its own, `qos`",
        ),
        (
            {"accelerators": {"H100": {"cpus": 1, "memory_gb": 1, "extra": "-Jname"}}},
            "accelerators.H100.extra: `-J` is given by the workflow; leave it out",
        ),
    ],
)
def test_a_mistake_is_one_line_with_file_key_and_fix(changes, message, tmp_path):
    path = write(tmp_path, **changes)
    with pytest.raises(ConfigError) as raised:
        load_site(path, [GPUS])
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_example_has_a_place_for_every_study_of_the_project():
    studies = [load_study(path) for path in sorted((ROOT / "config/studies").glob("*.yaml"))]
    assert studies
    wanted = [HardwareSpec(accelerator=s.hardware.accelerator, device=s.hardware.device, count=1) for s in studies]
    load_site(ROOT / "config/sites/example.yaml", wanted)


def test_a_run_may_take_what_its_protocol_allows_or_thrice_what_such_runs_took():
    protocol = {"rounds": {"min": 2, "max": 2}, "startup_timeout_s": 600, "round_timeout_s": 900}
    spec = made_spec(**protocol)
    assert longest_s(spec.protocol, 2) == 2 * (600 + 2 * 960)
    assert longest_s(ProtocolSpec(**protocol, warmup_requests=0), 1) == 600 + 960
    assert runtime_min(spec, None) == 10 + 84
    assert runtime_min(spec, 4 * 300.0) == 10 + 15  # accelerator-seconds of 4
    assert runtime_min(spec, 4 * 86400.0) == 10 + 84
    assert pair_runtime_min((spec, spec), cycles=2) == 10 + 2 * 4 * 42
