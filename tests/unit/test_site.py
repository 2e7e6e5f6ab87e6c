"""Sites: what a run asks a batch system for, and what is wrong with a site's file."""

from pathlib import Path

import pytest
import yaml

from servelab.core.errors import ConfigError
from servelab.core.run_spec import HardwareSpec, ProtocolSpec, RunSpec
from servelab.measure.clients import CLIENTS
from servelab.measure.inputs import longest_s, runtime_min
from servelab.study.site import load_site
from servelab.study.study import load_study

ROOT = Path(__file__).parents[2]
GPUS = HardwareSpec(accelerator="H100", device="nvidia", count=4)
CPU = HardwareSpec(accelerator="cpu", device="cpu", count=1)
SITE = {
    "site": "ours",
    "accelerators": {"H100": {"partition": "gpu", "gres": "gpu:h100", "cpus": 8, "memory_gb": 100.5, "qos": "long"}},
    "devices": {
        "nvidia": {"gres": "gpu", "cpus": 1, "memory_gb": 1},
        "cpu": {"cpus": 16, "memory_gb": 64, "extra": "--exclusive --nice=10", "most_runtime_min": 90},
    },
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
    asked = site.placement(GPUS).request(GPUS, runtime_min=30)
    assert asked == {
        "slurm_partition": "gpu",
        "gres": "gpu:h100:4",
        "qos": "long",
        "cpus_per_task": 32,
        "mem_mb": 402000,
        "runtime": 30,
    }
    assert site.placement(CPU).request(CPU, runtime_min=91) == {
        "cpus_per_task": 16,
        "mem_mb": 64000,
        "runtime": 90,
        "slurm_extra": "--exclusive --nice=10",
    }
    without = site.placement(CPU).model_copy(update={"memory_gb": None})
    assert "mem_mb" not in without.request(CPU, runtime_min=91)
    assert site.placement(GPUS.model_copy(update={"accelerator": "A100"})).gres == "gpu"


def test_of_several_nodes_a_run_asks_for_each_what_its_accelerators_there_need(tmp_path):
    site = load_site(write(tmp_path), [GPUS, CPU])
    asked = site.placement(GPUS).request(GPUS.model_copy(update={"count": 8, "nodes": 2}), runtime_min=30)
    one = site.placement(GPUS).request(GPUS, runtime_min=30)
    assert asked == one | {"nodes": 2}
    asked = site.placement(CPU).request(CPU.model_copy(update={"count": 2, "nodes": 2}), runtime_min=30)
    assert (asked["nodes"], asked["tasks"], asked["cpus_per_task"]) == (2, 2, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"site": "other"}, "site: `other` must be the file's name, `ours`"),
        ({"acelerators": {}}, "unknown key `acelerators`; did you mean `accelerators`?"),
        (
            {"accelerators": {}, "devices": {}},
            "accelerators: has no `H100`, and `devices` has no `nvidia`; add one",
        ),
        ({"accelerators": {"H100": {"cpus": 1, "memory_gb": 1, "gres": "gpu:h100:4"}}}, "accelerators.H100.gres: "),
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
    protocol = {"rounds": 2, "startup_timeout_s": 600, "round_timeout_s": 900}
    spec = made_spec(**protocol)
    assert longest_s(spec.protocol, 2) == 2 * (600 + 2 * 960)
    assert longest_s(ProtocolSpec(**protocol, warmup_requests=0), 1) == 600 + 960
    assert runtime_min([[spec]]) == 10 + 84
    assert runtime_min([[spec]], lambda _: 4 * 300.0) == 10 + 10 + 15  # accelerator-seconds of 4, and a start-up
    assert runtime_min([[spec]], lambda _: 4 * 86400.0) == 10 + 84
    assert runtime_min([[spec, spec], [spec]]) == 10 + 3 * 84
    assert runtime_min([[spec, spec], [spec]], lambda _: 4 * 300.0) == 10 + (10 + 2 * 15) + (10 + 15)
    known = iter([4 * 300.0, None, 4 * 300.0])
    assert runtime_min([[spec, spec], [spec]], lambda _: next(known)) == 10 + 2 * 84 + (10 + 15)


def test_a_site_of_one_machine_only_names_variables(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text("site: ours\npass_variables: [LD_LIBRARY_PATH]\n")
    site = load_site(path, [GPUS])
    assert (site.pass_variables, site.is_cluster) == (["LD_LIBRARY_PATH"], False)
    path.write_text("site: ours\npass_variables: [A=B]\n")
    with pytest.raises(ConfigError, match="pass_variables"):
        load_site(path, [GPUS])
