"""Forms of the recommended command: each starts as printed, with the whole command and nothing invented."""

import json
import os
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest

from servelab.report.answer_section import forms_of

COMMAND = (
    "VLLM_USE='a b' OMP=1 vllm serve Qwen/Qwen3-32B -tp 4 --speculative-config '{\"method\":\"mtp\"}' --note 'x $HOME'"
)
WORDS = shlex.split(COMMAND)[2:]
VARIABLES = {"VLLM_USE": "a b", "OMP": "1"}
IMAGE = "docker.io/vllm/vllm-openai@sha256:" + "0123456789abcdef" * 4
LAUNCHED = "python -m server --model /a/b.gguf --threads 2"
TITLES = {
    "here": "On this machine, as it was measured",
    "bare": "With the model's name in place of its path",
    "docker": "Docker",
    "slurm": "Slurm script",
}


def forms(
    device="nvidia",
    accelerators=4,
    image=None,
    has_name=True,
    command=COMMAND,
    baseline="",
    launched=LAUNCHED,
    version="0.32.0",
):
    study = SimpleNamespace(study="qwen3_32b.h100", hardware=SimpleNamespace(device=device, nodes=1))
    recommended = SimpleNamespace(
        run_id="r",
        command=command,
        launch_command=launched,
        deployment={},
        engine="vllm",
        engine_version=version,
        changed=True,
        configuration=SimpleNamespace(accelerators=accelerators),
    )
    manifest = SimpleNamespace(environment=SimpleNamespace(image=image))
    origin = SimpleNamespace(manifest=lambda _: manifest, model_has_name=lambda _: has_name)
    return {form.title: form for form in forms_of(study, recommended, origin, baseline)}


def form(name, **changes):
    return forms(**changes)[TITLES[name]].text


def run_with_doubles(script: str, folder, program: str) -> dict:
    """What the program that a script starts was given; the script is run by a real shell."""
    double = folder / program
    tell = "print(json.dumps({'words': sys.argv[1:], 'env': dict(os.environ)}))"
    double.write_text(f"#!{sys.executable}\nimport json, os, sys\n{tell}\n")
    double.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/home/somebody"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("changes", "titles"),
    [
        ({}, ["bare", "slurm"]),
        ({"image": IMAGE}, ["bare", "docker", "slurm"]),
        ({"image": IMAGE, "has_name": False}, ["here"]),
        ({"has_name": False, "launched": None}, ["bare"]),
    ],
)
def test_each_form_has_the_whole_command_and_nothing_to_fill_in(changes, titles):
    """Weights that were made here have the command only; the best form for this machine is the first."""
    made = forms(**changes)
    assert list(made) == [TITLES[name] for name in titles]
    for title, each in made.items():
        assert each.text == LAUNCHED if title == TITLES["here"] else "Qwen/Qwen3-32B" in each.text
        assert not re.search(r"<[A-Z]", each.text)
        assert (IMAGE in each.text) == ("image" in changes and title in (TITLES["docker"], TITLES["slurm"]))
        subprocess.run(["bash", "-n"], input=each.text, text=True, check=True, env=dict(os.environ))


@pytest.mark.parametrize(
    ("baseline", "marked"),
    [
        ("server --model a.gguf --threads 2", ["--model", "/a/b.gguf"]),
        ("server --model b.gguf --threads 4", ["--threads", "2"]),
        ("server --model b.gguf --threads 2 --flash-attn on", []),
    ],
)
def test_what_the_baseline_does_not_have_is_marked_also_where_only_a_path_differs(baseline, marked):
    (made,) = forms(has_name=False, command="server --model b.gguf --threads 2", baseline=baseline).values()
    assert [word for word, changed in made.pieces if changed] == marked


def test_docker_is_given_image_devices_variables_and_the_command(tmp_path):
    words = run_with_doubles(form("docker", image=IMAGE), tmp_path, "docker")["words"]
    assert words[0] == "run"
    assert words[words.index("--gpus") + 1] == '"device=0,1,2,3"'
    assert "/home/somebody/.cache/huggingface:/root/.cache/huggingface" in words
    given = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
    assert dict(each.split("=", 1) for each in given) == VARIABLES
    assert words[words.index("--entrypoint") :] == ["--entrypoint", WORDS[0], IMAGE, *WORDS[1:]]
    words = run_with_doubles(form("docker", device="ascend", accelerators=2, image=IMAGE), tmp_path, "docker")["words"]
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
