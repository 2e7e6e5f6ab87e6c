"""Edits of adapters, clients, launchers and locks, in a copy of the checkout: which measuring jobs each plans, and why.

docs/studies.md has the table of them. Nothing is served: a run that is planned under another id is measured again.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from servelab.core.yaml_file import read_yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STUDIES = ("cpu-engines", "qwen3-14b-h100", "guided", "contained")
SIGNS = "scripts/servelab/engines/failure_signs.yaml"
LLAMA, VLLM, SGLANG = (f"scripts/servelab/engines/adapters/{name}.py" for name in ("llama_cpp", "vllm", "sglang"))
DOCKER, APPTAINER = (f"scripts/servelab/engines/runtimes/{name}.py" for name in ("docker", "apptainer"))
LAUNCHER = "scripts/servelab/engines/llama_cpp_server.py"


class Edit(NamedTuple):
    """An edit of one file, and the runs that it concerns."""

    file: str
    old: str
    new: str
    engines: frozenset[str] = frozenset()
    """Engines whose jobs are planned anew; of the others none is."""
    why: str = ""
    """The part of the specification that differs, the same in all these runs."""
    only: str = ""
    """If given, only the jobs of candidates with this in their name."""
    studies: tuple[str, ...] = STUDIES


def edit(file, old, new, engines="", why="", **more) -> Edit:
    return Edit(file, old, new, frozenset(engines.split()), why, **more)


CONTAINED = {"vllm": "docker", "sglang": "podman", "tensorrt-llm": "apptainer"}
EVERY = "llama.cpp vllm sglang tensorrt-llm"
EDITS = {
    "adapter: a flag's value": edit(
        LLAMA, "str(value * (slots", "str(2 * value * (slots", "llama.cpp", "served.command", only="max_num_seqs"
    ),
    "adapter: base command": edit(
        VLLM,
        '"-m", "vllm.entrypoints.openai.api_server"',
        '"-m", "vllm.entrypoints.cli.main", "serve"',
        "vllm",
        "served.command",
    ),
    "adapter: environment variable": edit(
        VLLM, '"DO_NOT_TRACK": "1",', '"DO_NOT_TRACK": "1", "VLLM_USE_V1": "1",', "vllm", "served.environment"
    ),
    "adapter: how caches are emptied": edit(
        SGLANG.replace(".py", ".yaml"), "cache_reset: /flush_cache", "cache_reset: null", "sglang", "served.cache_reset"
    ),
    "adapter: how a failure is recognised": edit(SIGNS, "- bad_alloc\n", "- bad_alloc\n  - no room\n"),
    "adapter: a comment": edit(VLLM, "# enables /reset_prefix_cache", "# for the caches"),
    "docker, and podman: a flag": edit(
        DOCKER,
        '"--no-healthcheck",',
        '"--no-healthcheck", "--ipc=host",',
        "vllm sglang",
        "served.container",
        studies=("contained",),
    ),
    "podman: a flag": edit(
        DOCKER, "--userns=keep-id", "--userns=host", "sglang", "served.container", studies=("contained",)
    ),
    "device: how a container sees it": edit(
        "scripts/servelab/machine/devices/nvidia.py",
        '("--nv",)',
        '("--nvccli",)',
        "tensorrt-llm",
        "served.container",
        studies=("contained",),
    ),
    "launcher: what it does": edit(
        LAUNCHER, "chosen.n_parallel = -1", "chosen.n_parallel = 1", "llama.cpp", "served.command"
    ),
    "client: its version": edit(
        "scripts/servelab/measure/clients/servelab.py",
        'version = "4"',
        'version = "5"',
        EVERY,
        "client.version",
        studies=("cpu-engines", "qwen3-14b-h100", "contained"),
    ),
    "client code": edit("scripts/servelab/measure/load/sender.py", "from __future__", "# a change\nfrom __future__"),
    "lock of an engine: a package": edit(
        "envs/sglang-0.5.5.post1.lock.txt",
        "aiohttp==3.13.2",
        "aiohttp==3.13.3",
        "sglang",
        "engine.environment_sha256",
        studies=("qwen3-14b-h100",),
    ),
    "lock of an engine: a comment": edit("envs/sglang-0.5.5.post1.lock.txt", "# via aiohttp", "# via something else"),
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout, with a study for another client, one of packages alone, and one of images alone."""
    folder = tmp_path_factory.mktemp("edits") / "checkout"
    for name in ("scripts", "config", "envs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "config/studies/cpu-engines.yaml").read_text()
    assert "study: cpu-engines\n" in text
    text = text.replace("study: cpu-engines\n", "study: guided\nclient: vllm-bench\n")
    workloads = "workloads: [cpu-sharegpt, cpu-short, cpu-generation]\n"
    assert workloads in text
    text = text.replace(workloads, "workloads: [cpu-sharegpt]\n")  # this client sends text, not token ids
    (folder / "config/studies/guided.yaml").write_text(text)
    packaged = folder / "config/studies/qwen3-14b-h100.yaml"
    image = "runtime: docker, lock: envs/vllm-openai-0.11.0.image.yaml"
    assert image in packaged.read_text()
    packaged.write_text(packaged.read_text().replace(image, "lock: envs/vllm-0.11.0.lock.txt"))  # as its comment says
    study = read_yaml(packaged)
    study |= {"study": "contained", "stages": study["stages"][:1]}
    for number, (engine, runtime) in enumerate(CONTAINED.items()):
        study["engines"][engine] |= {"runtime": runtime, "lock": f"envs/{engine}.{runtime}.yaml"}
        image = f"docker.io/example/{engine}@sha256:{number:064x}"
        described = {"image": image, "version": str(study["engines"][engine]["version"])}
        (folder / f"envs/{engine}.{runtime}.yaml").write_text(yaml.safe_dump(described))
    (folder / "config/studies/contained.yaml").write_text(yaml.safe_dump(study))
    return folder


def jobs_of(checkout: Path) -> list[dict]:
    command = [sys.executable, str(Path(__file__).with_name("planned_jobs.py")), *STUDIES]
    variables = os.environ | {"PYTHONPATH": str(checkout / "scripts")}
    done = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def before(checkout) -> list[dict]:
    return jobs_of(checkout)


def parts(spec: dict) -> dict[str, object]:
    """The parts of a specification, two levels deep."""
    pairs = {name: value.items() if isinstance(value, dict) else [("", value)] for name, value in spec.items()}
    return {f"{name}.{inner}".rstrip("."): value for name, items in pairs.items() for inner, value in items}


def changes(old: dict, new: dict) -> set[str]:
    """The parts that differ."""
    first, second = parts(old), parts(new)
    return {name for name in first | second if first.get(name) != second.get(name)}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_plans_exactly_the_jobs_that_it_concerns(name, checkout, before):
    made = EDITS[name]
    file = checkout / made.file
    original = file.read_text()
    assert made.old in original, "the edit is of code that is there"
    try:
        file.write_text(original.replace(made.old, made.new, 1))
        after = jobs_of(checkout)
    finally:
        file.write_text(original)
    measured = {run for job in before for run in job["runs"]}
    planned = [job["place"] for job in after if not job["runs"].keys() <= measured]
    wanted = [
        job["place"]
        for job in before
        if job["engine"] in made.engines and job["place"][0] in made.studies and made.only in job["place"][2]
    ]
    assert planned == wanted
    assert bool(wanted) == bool(made.engines), "the edit concerns some of the jobs"
    assert len(planned) < len(before)
    for old, new in zip(before, after, strict=True):
        assert old["place"] == new["place"]
        if new["place"] in planned:
            pairs = zip(old["runs"].values(), new["runs"].values(), strict=True)
            assert {change for pair in pairs for change in changes(*pair)} == {made.why}
