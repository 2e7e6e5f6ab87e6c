"""Checks of an environment before its first measurement: what each sees, and what stops a study."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from servelab.core.errors import ConfigError, Outage
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import Environment
from servelab.engines.server_to_start import EnvironmentFacts, Setting
from servelab.measure.environment_gate import NAMES, check_environment, refuse_failed

PACKAGE = """
import argparse, json
class Server: pass
class Loaded:
    def __init__(self, **keys): self.__dict__.update(keys)
    def encode(self, text): return text.split()
def fill(parser): parser.add_argument("--slots", type=int)
def tokenizer(folder): return Loaded()
def configuration(folder, trust_remote_code): return Loaded(**json.load(open(folder + "/config.json")))
"""
FACTS = EnvironmentFacts(
    application=("served:Server",),
    fill_parser=("moved_away:fill", "served:fill"),
    tokenizer=("served:tokenizer",),
    configuration=("served:configuration",),
    reads_keys_before={"rope_theta": "2.0"},
)


@pytest.fixture
def engine(monkeypatch):
    """An engine whose facts a test chooses; the class is that of llama.cpp."""
    found = ENGINES.get("llama.cpp")
    monkeypatch.setattr(type(found), "facts", FACTS)
    monkeypatch.setattr(type(found), "packages", ("served",))
    return found


class Place:
    """A folder with a package `served`, a Python that sees it, and a model."""

    def __init__(self, folder: Path) -> None:
        self.packages, self.model = folder / "packages", folder / "model"
        (self.packages / "served-1.0.dist-info").mkdir(parents=True)
        (self.packages / "served.py").write_text(PACKAGE)
        self.metadata("")
        self.model.mkdir()
        self.config(model_type="qwen3_moe", rope_theta=1e6)
        stored = {"path": "model", "format": "safetensors", "tokenizer": "model/tokenizer.json", "conversion": None}
        stored["source"] = {"kind": "path", "path": str(self.model), "revision": "1"}
        (folder / "model.json").write_text(json.dumps(stored))
        self.python = folder / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH={self.packages} exec {sys.executable} "$@"\n')
        self.python.chmod(0o755)
        self.model_json = folder / "model.json"

    def metadata(self, requires: str) -> None:
        (self.packages / "served-1.0.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: served\nVersion: 1.0\n{requires}"
        )

    def config(self, **keys) -> None:
        (self.model / "config.json").write_text(json.dumps(keys))

    def edit(self, old: str, new: str) -> None:
        assert old in PACKAGE
        (self.packages / "served.py").write_text(PACKAGE.replace(old, new))

    def check(self, engine, settings=(), version="1.0", device="cpu") -> dict[str, tuple[str, str]]:
        environment = Environment(
            tool=engine.name, version=version, runtime="venv", python=self.python, lock_sha256="0" * 64, packages={}
        )
        checks = check_environment(engine, environment, self.model_json, device, settings)
        assert [each.check for each in checks] == list(NAMES)[: len(checks)]
        return {each.check: (each.verdict, each.saw) for each in checks}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_an_environment_that_works_passes(place, engine):
    found = place.check(engine, [Setting({"max_num_seqs": 2}, {}, {})])
    assert {verdict for verdict, _ in found.values()} == {"ok"}


@pytest.mark.parametrize(
    ("check", "spoil", "saw"),
    [
        ("packages", lambda place: place.metadata("Requires-Dist: packaging>999\n"), "served asks for >999"),
        ("application", lambda place: place.edit("class Server", "class Other"), "no attribute 'Server'"),
        ("options", lambda place: place.edit("parser.add_argument", "parser.no_such"), "no attribute 'no_such'"),
        ("tokenizer", lambda place: place.edit("return text.split()", "return []"), "makes no token"),
        ("configuration", lambda place: place.edit("**json.load", "**{} and json.load"), "rope_theta` is 1000000.0"),
        (
            "application",
            lambda place: place.edit("class Server", "import os; os._exit(9)\nclass Server"),
            "exit code 9",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_check(place, engine, check, spoil, saw):
    spoil(place)
    verdict, found = place.check(engine)[check]
    assert verdict == "failed" and saw in found


def test_a_failed_check_is_an_error_with_a_remedy(place, engine):
    place.edit("class Server", "class Other")
    environment = Environment(
        tool=engine.name, version="1.0", runtime="venv", python=place.python, lock_sha256="0" * 64, packages={}
    )
    checks = check_environment(engine, environment, place.model_json, "cpu", [])
    with pytest.raises(ConfigError) as error:
        refuse_failed(engine, environment, "envs/a.lock.txt", checks)
    first, saw, remedy = str(error.value).splitlines()
    assert first.startswith("the environment of llama.cpp 1.0 (envs/a.lock.txt) cannot serve this study")
    assert "no attribute 'Server'" in saw and "make lock" in remedy
    refuse_failed(engine, environment, "", [each for each in checks if each.verdict != "failed"])


def test_an_interpreter_that_cannot_be_started_is_an_outage(place, engine):
    place.python.write_bytes(b"\x7fELF no program")
    with pytest.raises(Outage, match="cannot be started"):
        place.check(engine)
