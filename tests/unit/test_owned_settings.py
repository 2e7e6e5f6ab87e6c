"""What Servelab sets itself, no study can: under no name that an engine's parser reads, and through no variable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servelab.core.errors import ConfigError
from servelab.engines.adapters import ENGINES
from servelab.engines.options import ALL_ENGINES
from servelab.engines.server_to_start import Serve
from servelab.machine.devices import DEVICES

ROOT = Path(__file__).parents[2]
FLAGS = ROOT / "scripts/servelab/engines/flags"
RELEASES = {
    "vllm": ("vllm-0.11.0", "vllm-0.17.1", "vllm-0.32.0"),
    "vllm-ascend": ("vllm-0.9.1",),
    "sglang": ("sglang-0.5.5.post1", "sglang-0.5.9"),
    "tensorrt-llm": ("tensorrt-llm-1.2.0rc1",),
}
LISTED = [(engine, release) for engine, releases in RELEASES.items() for release in releases]
SENSITIVE = re.compile(
    r"--(host|port|uds|.*-port|model|model[-_]path|served[-_]model[-_]name|(admin-)?api[-_]key|ssl-.*|.*root-path|config"
    r"|tokenizer|tokenizer-path|(tokenizer-|code-)?revision|nnodes|node-rank|master-addr|headless|grpc.*|device"
    r"|extra_llm_api_options|enable-metrics|.*-init-addr)"
)
"""Flags of a release that must not be a study's, by their names alone."""
NOT_OF_THE_SERVER = {"--disaggregation-bootstrap-port", "--remote-instance-weight-loader-seed-instance-service-port"}


def listed(release):
    return (FLAGS / f"{release}.txt").read_text().split()


def refused(engine, given, options=None):
    return ENGINES.get(engine).refused_arguments(options or {}, given)


def spellings(engine, name):
    """Every way to write a flag that its parser, or a study's reader, takes for it."""
    word = name.lstrip("-")
    dashes = "-" if name.startswith("-") and not name.startswith("--") else "--"
    for each in {word, word.replace("-", "_"), word.replace("_", "-")}:
        yield from (each, dashes + each, f"{dashes}{each}=0.0.0.0", f"--no-{each}")
    if engine.abbreviates and dashes == "--":
        yield from (f"--{word[:end]}" for end in range(2, len(word)))


def test_the_documentation_lists_why_no_study_may_set_them():
    page = (ROOT / "docs/reference/options.md").read_text()
    parts = (*ALL_ENGINES, *(part for engine in ENGINES for part in engine.owned))
    assert [part.why for part in parts if f"- {part.why}\n" not in page] == []


@pytest.mark.parametrize("engine", list(ENGINES), ids=lambda engine: engine.name)
def test_no_owned_flag_under_any_of_its_names(engine):
    assert engine.owned
    owned = {engine.names.of(flag) for part in engine.owned for flag in part.flags}
    groups = [group for group in engine.aliases if engine.names.of(group[0]) in owned]
    for name in {
        *(flag for part in engine.owned for flag in part.flags),
        *(name for group in groups for name in group),
    }:
        ways = [name] if engine.checks_arguments else spellings(engine, name)
        others = {flag for release in RELEASES.get(engine.name, ()) for flag in listed(release)}
        for given in [way for way in ways if way not in others or engine.names.of(way) in owned]:
            for value in ("0.0.0.0", None):
                assert given in engine.refused_arguments({}, {"seed": 1, given: value}), given


@pytest.mark.parametrize(("engine", "release"), LISTED)
def test_sensitive_flags_of_a_release_are_owned_and_all_others_a_study_may_give(engine, release):
    for flag in listed(release):
        why = refused(engine, {flag: "1"}).get(flag, "")
        if SENSITIVE.fullmatch(flag) and flag not in NOT_OF_THE_SERVER:
            assert "may not be set" in why, flag
        else:
            assert not why or "may not be set" in why, (flag, why)


@pytest.mark.parametrize("value", ["--host=0.0.0.0", "--host", "-m", "--port=1"])
@pytest.mark.parametrize("engine", list(ENGINES), ids=lambda engine: engine.name)
def test_no_flag_in_the_value_of_another(engine, value):
    assert "reads as another argument" in engine.refused_arguments({}, {"size": value})["size"]
    assert not engine.refused_arguments({}, {"size": "-1", "chunk": -1, "name": "a-b", "json": '{"-a": 1}'})


@pytest.mark.parametrize(
    ("engine", "options", "arguments"),
    [
        ("vllm", {}, {"-tp": 2, "--tensor-parallel-size": 2}),
        ("vllm", {}, {"--max_num_seqs": 2, "--max-num-seqs": 4}),
        ("vllm", {"tensor_parallel_size": 2}, {"--tensor_parallel_size": 4}),
        ("vllm", {"max_num_seqs": 2}, {"--max-num-s": 4}),
        ("vllm", {"prefix_caching": True}, {"--disable-prefix-caching": None}),
        ("vllm", {"speculative_decoding": "ngram"}, {"--speculative-config.method": "eagle"}),
        ("sglang", {"prefix_caching": True}, {"--disable-radix-cache": None}),
        ("llama.cpp", {"max_num_seqs": 2}, {"-np": 4}),
        ("tensorrt-llm", {"kv_cache_dtype": "fp8"}, {"extra_llm_api_options.kv_cache_config.dtype": "auto"}),
        ("tensorrt-llm", {}, {"extra_llm_api_options.model": "other"}),
        ("mindie", {"max_num_seqs": 2}, {"ScheduleConfig.maxBatchSize": 4}),
    ],
)
def test_one_flag_under_two_names_is_refused(engine, options, arguments):
    found = refused(engine, arguments, options)
    assert len(found) == 1
    with pytest.raises(ConfigError, match=rf"engine {engine}: the argument `"):
        ENGINES.get(engine).flags(options, arguments)


@pytest.mark.parametrize("engine", [each for each in ENGINES if not each.already_runs], ids=lambda engine: engine.name)
def test_no_variable_sets_what_servelab_sets(engine):
    own = engine.environment(Serve(Path("p"), Path("m"), "n", 1, {}, {}))
    devices = [kind.variable for kind in DEVICES if kind.variable]
    named = [name.replace("*", "X") for part in engine.owned for name in part.variables]
    for name in [*own, *devices, *named, "CUDA_DEVICE_ORDER", "PYTHONPATH", "HOST_IP", "MASTER_ADDR", "SLURM_JOB_ID"]:
        assert "may not be set" in engine.refused_variables({}, {name: "1"})[name]
    assert (
        engine.refused_variables({}, {"OMP_NUM_THREADS": "4", "LD_PRELOAD": "libtcmalloc.so", "NCCL_DEBUG": "INFO"})
        == {}
    )
    for name, option in engine.variables_of_options.items():
        assert engine.refused_variables({}, {name: "1"}) == {}
        assert f"option `{option}`" in engine.refused_variables({option: 1}, {name: "1"})[name]


@pytest.mark.parametrize("name", [name for name in ENGINES.names() if name not in ("mindie", "endpoint")])
def test_what_servelab_sets_comes_last_on_the_command_line(name):
    """A parser takes the last of two: no argument, whatever its name, replaces the address or the model's name."""
    command = ENGINES.get(name).command(Serve(Path("/python"), Path("/model"), "name", 1234, {}, {"x": 1, "zz": None}))
    last = max(command.index("--x"), command.index("--zz"))
    assert last < command.index("--host") < command.index("--port")
