"""`servelab bisect` and `servelab upgrade` on real releases of llama.cpp; from one on a slowdown is planted."""

import shutil

import pytest
import yaml
from servelab_command import SERVELAB
from workspace import NEW, OLD, WORKLOADS, Workspace, tiny_study

from servelab.search.project import load_project

PLANTED = """

import hashlib
import os
import threading

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
threading.Thread(target=lambda: [hashlib.sha256(bytes(1 << 20)) for _ in iter(int, 1)], daemon=True).start()
"""
"""Other work on the server's only core: hashing leaves the interpreter's lock to others."""
SHORT = WORKLOADS["tiny"] | {"parameters": WORKLOADS["tiny"]["parameters"] | {"output_tokens": 8, "num_requests": 24}}
OLDEST = "2026.9.10809"
BETWEEN = ("--releases", OLD)
WORDS = ("bisect", "tiny", "--engine", "llama.cpp", "--good", OLDEST, "--bad", NEW, *BETWEEN, "--pairs", "8")


@pytest.fixture
def fresh(tmp_path):
    workspace = Workspace.create(tmp_path / "fresh")
    study = tiny_study()
    study["engines"].pop("old")
    workspace.write("config/workloads.yaml", yaml.safe_dump({"tiny": SHORT}))
    study["protocol"]["round_timeout_s"] = 600  # what is planted makes a round long on a busy machine
    workspace.write_study(study | {"stages": study["stages"][1:], "workloads": ["tiny"]})
    return workspace


@pytest.mark.slow
def test_the_guilty_release_is_named_and_its_runs_are_kept(fresh):
    envs = fresh.folder / "results/envs"
    shared = envs.resolve()
    envs.unlink()
    envs.mkdir()
    for version in (OLDEST, OLD, NEW):  # environments of this test's own, as two of them are changed
        fresh.write_study(fresh.study() | {"engines": {"llama.cpp": {"version": version, "lock": lock(version)}}})
        target = environment(fresh)
        if (shared / target.name).exists():
            shutil.copytree(shared / target.name, target, symlinks=True)
        else:
            fresh.snakemake("--", f"{target.relative_to(fresh.folder)}/environment.json")
        if version != OLDEST:
            [module] = target.glob("venv/lib/python*/site-packages/xllamacpp/__init__.py")
            module.write_text(module.read_text() + PLANTED)

    done = fresh.call(*SERVELAB, *WORDS)
    assert done.returncode == 0, done.stdout
    assert f"\n{OLD} made it worse: {OLDEST} → {OLD}: total_tokens_per_s -" in done.stdout
    runs = fresh.runs()
    again = fresh.call(*SERVELAB, *WORDS)
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert fresh.runs() == runs

    # The same starts tell whether an upgrade is worth it: to a slower release, and back.
    fresh.write_study(fresh.study() | {"engines": {"llama.cpp": {"version": OLDEST, "lock": lock(OLDEST)}}})
    upgrade = ("upgrade", "tiny", "--engine", "llama.cpp", "--pairs", "8", "--yes", "--to")
    slower = fresh.call(*SERVELAB, *upgrade, NEW, "--lock", lock(NEW))
    assert slower.returncode == 3, slower.stdout
    assert f"baseline: worse: {OLDEST} → {NEW}: total_tokens_per_s -" in slower.stdout
    assert fresh.study()["engines"]["llama.cpp"]["version"] == OLDEST
    fresh.write_study(fresh.study() | {"engines": {"llama.cpp": {"version": NEW, "lock": lock(NEW)}}})
    faster = fresh.call(*SERVELAB, *upgrade, OLDEST)
    assert (faster.returncode, fresh.runs()) == (0, runs), faster.stdout
    assert fresh.study()["engines"]["llama.cpp"] == {"version": OLDEST, "lock": lock(OLDEST)}


def lock(version):
    return "envs/llama.cpp.lock.txt" if version == NEW else f"envs/llama.cpp-{version}.lock.txt"


def environment(workspace):
    """The folder of the environment of the study's engine."""
    project = load_project(workspace.folder / "config/studies/tiny.yaml", workspace.folder)
    sha256 = project.environment_sha256("llama.cpp")
    return workspace.folder / f"results/envs/llama.cpp-{sha256[:12]}"
