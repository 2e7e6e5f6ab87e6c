"""Flags of every option against those of the releases in use, as their packages list them (tests/data/flags)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servelab.engines import ENGINES, Serve
from servelab.engines.options import OPTIONS
from servelab.errors import ConfigError

DATA = Path(__file__).parents[1] / "data/flags"
SAMPLES = {int: 2, bool: True, str: "auto", float: 0.5}
RELEASES = {
    "vllm-0.11.0": ("vllm", "0.11.0"),
    "vllm-0.17.1": ("vllm", "0.17.1"),
    "vllm-0.9.1": ("vllm-ascend", "0.9.1"),
    "sglang-0.5.5.post1": ("sglang", "0.5.5.post1"),
    "sglang-0.5.9": ("sglang", "0.5.9"),
    "tensorrt-llm-1.2.0rc": ("tensorrt-llm", "1.2.0rc1"),
}


def own_flags(engine, value_of):
    """The flags of all options an engine has, each with a value of its type."""
    options = {name: value_of(OPTIONS[name].kind) for name in engine.option_flags}
    return {name: engine.option_flags[name](value, options) for name, value in options.items()}


@pytest.mark.parametrize("release", RELEASES)
def test_release_knows_every_flag_of_every_option(release):
    known = set((DATA / f"{release}.txt").read_text().split())
    engine, version = ENGINES.get(RELEASES[release][0]), RELEASES[release][1]
    for value_of in (SAMPLES.get, lambda kind: False if kind is bool else SAMPLES[kind]):
        for name, flags in own_flags(engine, value_of).items():
            try:
                engine.check_options({name: SAMPLES[OPTIONS[name].kind]}, version)
            except ConfigError as error:
                assert f"engine {engine.name} {version} has no option `{name}`" in str(error)
                assert flags[0] not in known
                continue
            for flag in flags:
                if flag.startswith("-"):
                    assert flag in known or flag.replace("--no-", "--") in known, name


def test_every_release_of_the_live_studies_is_checked():
    listed = {path.stem for path in DATA.glob("*.txt")}
    assert listed == set(RELEASES)


def test_arguments_stand_before_options_and_cannot_hide_one():
    engine = ENGINES.get("vllm")
    assert engine.flags({"max_num_seqs": 4}, {"x": 1}) == ["--x", "1", "--max-num-seqs", "4"]
    with pytest.raises(ConfigError, match=r"`--max-num-seqs` is set by an option too"):
        engine.flags({"max_num_seqs": 4}, {"max-num-seqs": 8})


def test_values_can_be_joined_to_their_flags():
    options = {"tensor_parallel_size": 2, "max_num_seqs": 4, "enforce_eager": True}
    joined = ENGINES.get("vllm").flags(options, {"y": -1, "z": None, "--a=b": None}, joined=True)
    assert joined == ["--y=-1", "--z", "--a=b", "-tp", "2", "--max-num-seqs=4", "--enforce-eager"]


def test_drafted_tokens_need_a_way_to_draft_them():
    flags = ENGINES.get("vllm").flags
    assert json.loads(flags({"speculative_decoding": "ngram"}, {})[1]) == {"method": "ngram"}
    with pytest.raises(ConfigError, match="needs `speculative_decoding`"):
        flags({"speculative_tokens": 4}, {})


@pytest.mark.parametrize("engine", ["vllm", "vllm-ascend", "sglang", "tensorrt-llm", "mindie"])
def test_accelerators_that_would_stand_idle_are_refused(engine):
    serve = Serve(Path("/python"), Path("/model"), "name", 1234, {}, {}, count=4)
    with pytest.raises(ConfigError, match=rf"engine {engine} .*4 accelerators"):
        ENGINES.get(engine).command(serve)
