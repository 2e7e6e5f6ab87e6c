"""Locks of releases: resolved as of the release, one at a time; see envs/recipes.yaml."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from servelab.core.errors import ConfigError, ServelabError
from servelab.core.identity import lock_sha256
from servelab.core.yaml_file import read_yaml
from servelab.engines import locking

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "envs/recipes.yaml"
NAMES = list(read_yaml(RECIPES))
LOCKS = sorted(path for path in (ROOT / "envs").glob("*.lock.txt") if re.search(r"-\d", path.name))
"""Those of a release, by their names."""


def file(name, when=None):
    return {"filename": name} | ({"upload-time": when} if when else {})


def lock_date(text):
    found = re.search(r"^# As of (\S+): nothing newer\.$", text, re.MULTILINE)
    return datetime.fromisoformat(found.group(1)) if found else None


def split(lock):
    """A lock's recipe and version, from its name."""
    name = max((name for name in NAMES if lock.name.startswith(f"{name}-")), key=len)
    return name, lock.name.removeprefix(f"{name}-").removesuffix(".lock.txt")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_says_as_of_when_it_is_and_pins_its_release(lock):
    name, version = split(lock)
    text = lock.read_text()
    recipe = locking.read_recipe(RECIPES, name)
    assert f"make lock ENGINE={name} VERSION={version}`" in text.splitlines()[0]
    assert lock_date(text) is not None
    assert re.search(rf"^{recipe.project}=={re.escape(version)} ", text, re.MULTILINE)
    assert not [package for package in recipe.left_out if re.search(rf"^{package}==", text, re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_resolved_again_it_is_the_same_file_and_no_other_changes(lock, tmp_path):
    name, version = split(lock)
    envs = shutil.copytree(ROOT / "envs", tmp_path / "envs")
    (envs / lock.name).unlink()
    before = {path.name: lock_sha256(path) for path in envs.glob("*.lock.txt")}
    script = [sys.executable, ROOT / "scripts/lock_environment.py", "--name", name, "--version", version]
    subprocess.run([*script, "--recipes", envs / RECIPES.name], check=True)
    after = {path.name: lock_sha256(path) for path in envs.glob("*.lock.txt")}
    assert after == before | {lock.name: lock_sha256(lock)}


def test_a_release_is_dated_by_its_first_file_and_found_among_others():
    listed = [
        file("vllm-0.11.0-cp38-abi3-manylinux1_x86_64.whl", "2025-10-04T01:39:32.382596Z"),
        file("vllm-0.11.0.tar.gz", "2025-10-04T01:39:57.798320Z"),
        file("vllm-0.11.0-cp312-cp312-manylinux_2_34_x86_64.whl", "2026-01-01T00:00:00Z"),
        file("vllm-0.11.1.tar.gz", "2025-11-18T00:00:00Z"),
        file("vllm.egg"),
    ]
    release = locking.find_release(listed, "vllm", "0.11.0")
    assert release.glibc == (2, 34)
    assert locking.as_of(release) == datetime(2025, 10, 5, 1, 39, 32, tzinfo=UTC)
    with pytest.raises(ConfigError, match=r"no vllm 0\.12; its newest are 0\.11\.0, 0\.11\.1"):
        locking.find_release(listed, "vllm", "0.12")
    with pytest.raises(ConfigError, match=r"does not date its files .* AS_OF="):
        locking.find_release([file("vllm-0.11.0.tar.gz")], "vllm", "0.11.0")


def test_mistakes_are_one_clear_error_and_leave_the_lock(tmp_path):
    with pytest.raises(ConfigError, match=r"recipes\.yaml has no recipe `vlm`; did you mean `vllm`"):
        locking.read_recipe(RECIPES, "vlm")
    lock, recipe, when = tmp_path / "vllm-1.lock.txt", locking.read_recipe(RECIPES, "vllm"), datetime.now(UTC)
    lock.write_text("before")
    with pytest.raises(ServelabError, match="uv cannot solve vllm 1"):
        locking.write_lock("vllm", "1", lock, ["false"], recipe, when)
    assert lock.read_text() == "before"
