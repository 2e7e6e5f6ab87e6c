"""Forms of the recommended command: what a shell, Slurm and Kubernetes are told, and that no image is invented."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from servelab.report.forms import FORMS, Deployment, forms_in_order

COMMAND = (
    "VLLM_USE='a b' OMP=1 vllm serve Qwen/Qwen3-32B -tp 4 --speculative-config '{\"method\":\"mtp\"}' --note 'x $HOME'"
)
WORDS = shlex.split(COMMAND)[2:]
VARIABLES = {"VLLM_USE": "a b", "OMP": "1"}
IMAGE = "docker.io/vllm/vllm-openai@sha256:" + "0123456789abcdef" * 4
DEPLOYMENT = Deployment("qwen3_32b.h100", COMMAND, "vllm", "0.32.0", "nvidia", 4, None)


def parsed(text: str) -> dict:
    return yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]


def run_with_doubles(script: str, folder, program: str) -> dict:
    """What the program that a script starts was given; the script is run by a real shell."""
    double = folder / program
    tell = "print(json.dumps({'words': sys.argv[1:], 'env': dict(os.environ)}))"
    double.write_text(f"#!{sys.executable}\nimport json, os, sys\n{tell}\n")
    double.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/home/somebody"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_there_are_four_forms_in_order():
    assert [form.name for form in forms_in_order()] == ["bare", "docker", "slurm", "kubernetes"]


@pytest.mark.parametrize("name", FORMS.names())
def test_a_form_has_the_whole_command_and_says_what_is_to_be_filled_in(name, tmp_path):
    text = FORMS.get(name).build(DEPLOYMENT)
    assert "vllm" in text and "Qwen/Qwen3-32B" in text
    assert "sha256:0" not in text
    assert ("<IMAGE@sha256:DIGEST with vllm 0.32.0>" in text) == (name in ("docker", "kubernetes"))
    assert ("PLACEHOLDER" in text) == (name in ("docker", "kubernetes"))


@pytest.mark.parametrize("name", ["docker", "slurm", "kubernetes"])
def test_an_image_that_was_measured_is_taken(name):
    text = FORMS.get(name).build(replace(DEPLOYMENT, image=IMAGE))
    assert IMAGE in text and "PLACEHOLDER" not in text and "<IMAGE" not in text


def test_docker_is_given_image_devices_variables_and_the_command(tmp_path):
    words = run_with_doubles(FORMS.get("docker").build(replace(DEPLOYMENT, image=IMAGE)), tmp_path, "docker")["words"]
    assert words[0] == "run"
    assert words[words.index("--gpus") + 1] == '"device=0,1,2,3"'
    assert "/home/somebody/.cache/huggingface:/root/.cache/huggingface" in words
    given = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
    assert dict(each.split("=", 1) for each in given) == VARIABLES
    assert words[words.index("--entrypoint") :] == ["--entrypoint", WORDS[0], IMAGE, *WORDS[1:]]


def test_docker_is_given_nodes_and_driver_of_npus(tmp_path):
    text = FORMS.get("docker").build(replace(DEPLOYMENT, device="ascend", accelerators=2))
    words = run_with_doubles(text, tmp_path, "docker")["words"]
    assert {"/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager"} <= set(words)
    assert any(word.startswith("/usr/local/Ascend/driver:") and word.endswith(":ro") for word in words)


def test_slurm_asks_for_the_accelerators_and_starts_the_command(tmp_path):
    text = FORMS.get("slurm").build(DEPLOYMENT)
    assert "#SBATCH --gres=gpu:4\n" in text
    found = run_with_doubles(text, tmp_path, "srun")
    assert found["words"] == WORDS
    assert VARIABLES.items() <= found["env"].items()
    inside = run_with_doubles(FORMS.get("slurm").build(replace(DEPLOYMENT, image=IMAGE)), tmp_path, "srun")["words"]
    assert inside == ["apptainer", "exec", "--nv", f"docker://{IMAGE}", *WORDS]
    assert "#SBATCH --exclusive\n" in FORMS.get("slurm").build(replace(DEPLOYMENT, device="cpu", accelerators=1))


def test_kubernetes_is_given_the_command_variables_and_accelerators():
    text = FORMS.get("kubernetes").build(DEPLOYMENT)
    container = parsed(text)
    assert [*container["command"], *container["args"]] == WORDS
    assert {entry["name"]: entry["value"] for entry in container["env"]} == VARIABLES
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert yaml.safe_load(text)["metadata"]["name"] == "serve-qwen3-32b.h100"
    assert "resources" not in parsed(FORMS.get("kubernetes").build(replace(DEPLOYMENT, device="cpu", accelerators=1)))


def test_the_scripts_are_good_bash():
    for name in ("bare", "docker", "slurm"):
        text = FORMS.get(name).build(DEPLOYMENT)
        subprocess.run(["bash", "-n"], input=text, text=True, check=True, env=dict(os.environ))
