"""Forms of the recommended command: each starts as printed, with the whole command and nothing invented."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from servelab.report.forms import Deployment, command_forms

COMMAND = (
    "VLLM_USE='a b' OMP=1 vllm serve Qwen/Qwen3-32B -tp 4 --speculative-config '{\"method\":\"mtp\"}' --note 'x $HOME'"
)
WORDS = shlex.split(COMMAND)[2:]
VARIABLES = {"VLLM_USE": "a b", "OMP": "1"}
IMAGE = "docker.io/vllm/vllm-openai@sha256:" + "0123456789abcdef" * 4
DEPLOYMENT = Deployment("qwen3_32b.h100", COMMAND, "vllm", "0.32.0", "nvidia", 4, True, None)


TITLES = {
    "here": "On this machine, as it was measured",
    "bare": "With the model's name in place of its path",
    "docker": "Docker",
    "slurm": "Slurm script",
}


def form(name, **changes):
    return command_forms(replace(DEPLOYMENT, **changes)).get(TITLES[name])


def run_with_doubles(script: str, folder, program: str) -> dict:
    """What the program that a script starts was given; the script is run by a real shell."""
    double = folder / program
    tell = "print(json.dumps({'words': sys.argv[1:], 'env': dict(os.environ)}))"
    double.write_text(f"#!{sys.executable}\nimport json, os, sys\n{tell}\n")
    double.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/home/somebody"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("image", [None, IMAGE])
def test_a_form_has_the_whole_command_and_nothing_to_fill_in(name, image):
    text = form(name, image=image)
    if name == "here" or (name == "docker" and image is None):
        assert text is None
        return
    assert "vllm" in text and "Qwen/Qwen3-32B" in text
    assert not re.search(r"<[A-Z]", text)
    assert (IMAGE in text) == (image is not None and name != "bare")
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, env=dict(os.environ))


def test_weights_that_were_made_here_have_the_command_only():
    assert list(command_forms(replace(DEPLOYMENT, image=IMAGE, model_has_name=False))) == [TITLES["bare"]]


@pytest.mark.parametrize(("has_name", "first"), [(True, COMMAND), (False, "python -m server --model /a/b")])
def test_the_first_form_starts_as_it_is_printed(has_name, first):
    launched = replace(DEPLOYMENT, model_has_name=has_name, launch_command="python -m server --model /a/b")
    built = list(command_forms(launched).values())
    assert built[0] == first and (COMMAND in built) == has_name


def test_docker_is_given_image_devices_variables_and_the_command(tmp_path):
    words = run_with_doubles(form("docker", image=IMAGE), tmp_path, "docker")["words"]
    assert words[0] == "run"
    assert words[words.index("--gpus") + 1] == '"device=0,1,2,3"'
    assert "/home/somebody/.cache/huggingface:/root/.cache/huggingface" in words
    given = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
    assert dict(each.split("=", 1) for each in given) == VARIABLES
    assert words[words.index("--entrypoint") :] == ["--entrypoint", WORDS[0], IMAGE, *WORDS[1:]]


def test_docker_is_given_nodes_and_driver_of_npus(tmp_path):
    text = form("docker", device="ascend", accelerators=2, image=IMAGE)
    words = run_with_doubles(text, tmp_path, "docker")["words"]
    assert {"/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager"} <= set(words)
    assert any(word.startswith("/usr/local/Ascend/driver:") and word.endswith(":ro") for word in words)


def test_slurm_asks_for_the_accelerators_and_starts_the_command(tmp_path):
    text = form("slurm")
    assert "#SBATCH --gres=gpu:4\n" in text
    found = run_with_doubles(text, tmp_path, "srun")
    assert found["words"] == WORDS
    assert VARIABLES.items() <= found["env"].items()
    inside = run_with_doubles(form("slurm", image=IMAGE), tmp_path, "srun")["words"]
    assert inside == ["apptainer", "exec", "--nv", f"docker://{IMAGE}", *WORDS]
    assert "#SBATCH --exclusive\n" in form("slurm", device="cpu", accelerators=1)
