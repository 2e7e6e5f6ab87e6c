"""Engines: how their logs tell a failure, and what a server inherits. What they really do is in tests/engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from servelab.core.errors import ConfigError
from servelab.engines.adapters import ENGINES
from servelab.engines.options import OPTIONS
from servelab.engines.server_to_start import Serve

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("engine", list(ENGINES), ids=lambda engine: engine.name)
def test_every_engine(engine):
    assert set(engine.options) <= set(OPTIONS)
    assert engine.model_formats
    assert set(engine.option_since) <= set(engine.options)
    own = [target for target in (engine.facts.parse if engine.facts else ()) if ".py:" in target]
    assert all(Path(target.partition(":")[0]).is_relative_to(ROOT / "scripts") for target in own)


FLAGLESS = ("mindie", "endpoint")  # read a file instead, or already run; see test_mindie.py and test_endpoint.py


@pytest.mark.parametrize("name", [name for name in ENGINES.names() if name not in FLAGLESS])
def test_command_of_every_engine(name):
    engine = ENGINES.get(name)
    serve = Serve(
        Path("/python"), Path("/model"), "name", 1234, {"max_num_seqs": 3}, {"x": None, "--y": False, "z": 1.5}
    )
    command = engine.command(serve)
    assert command[0] == "/python"
    assert {"/model", "127.0.0.1", "1234", "3"} <= set(command)
    position = command.index("--x")
    assert command[position : position + 3] == ["--x", "--z", "1.5"]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"max_num_seqs": "4"}, "`max_num_seqs` takes a whole number, not '4'"),
        ({"max_num_seqs": 0}, "`max_num_seqs` takes a number above 0, not 0"),
        ({"enforce_eager": 1}, "`enforce_eager` takes true or false, not 1"),
        ({"max_num_sequences": 4}, "unknown option `max_num_sequences`; did you mean `max_num_seqs`"),
    ],
)
def test_wrong_options_are_refused(options, wrong):
    with pytest.raises(ConfigError, match=wrong.replace("(", r"\(")):
        ENGINES.get("vllm").check_options(options)


def test_context_length_is_for_each_slot():
    flags = ENGINES.get("llama.cpp").flags
    assert flags({"context_length": 1000, "max_num_seqs": 8}, {})[-2:] == ["--ctx-size", "8000"]
    assert flags({"context_length": 1000}, {}) == ["--ctx-size", "4000"]


def test_accelerators_that_would_stand_idle_are_refused():
    serve = Serve(Path("/python"), Path("/model"), "name", 1234, {}, {}, count=4)
    with pytest.raises(ConfigError, match="1 of 4 accelerators"):
        ENGINES.get("vllm").command(serve)
