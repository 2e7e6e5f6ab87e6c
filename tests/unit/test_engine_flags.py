"""Every option of every engine against what each release takes (engines/flags): docs/reference/options.md has them.

What engines really do is in tests/engines.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from servelab.core.errors import ConfigError
from servelab.core.yaml_file import read_yaml
from servelab.engines.adapters import ENGINES
from servelab.engines.adapters.mindie import SETTINGS
from servelab.engines.options import HOW_CHECKED, OPTIONS
from servelab.engines.server_to_start import Serve
from servelab.report.reference_docs import sample, spelled
from servelab.search.preflight.options import judge, known_flags, list_name

ROOT = Path(__file__).parents[2]
DATA = ROOT / "scripts/servelab/engines/flags"
KINDS = {int: {"int"}, float: {"float"}, bool: {"switch", "int", "text", "json"}, str: {"text", "json"}}
"""Kinds of flags and settings that an option's values fit; `text` is a choice that a switch is turned into."""
CELLS = [(engine, checked, option) for engine in ENGINES for checked in engine.checked for option in engine.options]


def data(engine, checked):
    """What is known of a release: names it takes, and kind and choices of those that options are; None without any."""
    file = DATA / f"{list_name(engine, checked)}.yaml"
    if not file.exists():
        return None
    kinds = yaml.safe_load(file.read_text())
    listed = file.with_suffix(".txt")
    return {*kinds, *(listed.read_text().split() if listed.exists() else [])}, kinds


@pytest.mark.parametrize("engine", list(ENGINES), ids=lambda engine: engine.name)
def test_every_option_has_evidence_for_every_release_in_use(engine):
    used = set()
    for path in (ROOT / "config/studies").glob("*.yaml"):
        engines = read_yaml(path)["engines"]
        used |= {str(entry["version"]) for name, entry in engines.items() if entry.get("engine", name) == engine.name}
    assert used <= {checked.release for checked in engine.checked}
    for checked in engine.checked:
        assert set(checked.run) <= set(engine.options)
        assert {checked.of(option) for option in engine.options} <= set(HOW_CHECKED)
        assert data(engine, checked) or set(checked.run) == set(engine.options), "nothing stands behind it"


@pytest.mark.parametrize(
    ("engine", "checked", "option"), CELLS, ids=lambda part: getattr(part, "name", getattr(part, "release", part))
)
def test_release_takes_the_option_as_it_is_spelled(engine, checked, option):
    found = data(engine, checked)
    if found is None:
        assert option in checked.run  # which tests/engines/test_options_run.py does
        return
    names, kinds = found
    own = [name for name in spelled(engine, option) if not name.startswith("VLLM_")]  # threads: run only
    try:
        engine.check_options({option: sample(engine, option)}, checked.release)
    except ConfigError as error:
        assert f"engine {engine.name} {checked.release} has no option `{option}`" in str(error)
        assert not set(own) & names
        return
    for name in own:
        assert name in names
        assert kinds[name]["kind"] in KINDS[OPTIONS[option].kind] or len(own) > 1
        if (choices := kinds[name].get("choices")) and option in engine.option_values and len(own) == 1:
            assert set(engine.option_values[option]) <= set(choices)


def test_lists_of_flags_are_all_used():
    listed = {path.stem for path in DATA.iterdir()}
    assert listed <= {list_name(engine, checked) for engine in ENGINES for checked in engine.checked}


def test_ranges_of_mindie_are_the_documented_ones():
    documented = yaml.safe_load((DATA / "mindie-2.1.RC1.yaml").read_text())
    for name, known in documented.items():
        if documents := known.get("range") or known.get("choices"):
            assert SETTINGS[name]["takes"] == documents


@pytest.mark.parametrize("engine", list(ENGINES), ids=lambda engine: engine.name)
def test_a_refused_option_names_engine_option_and_version(engine):
    for option in set(OPTIONS) - set(engine.options):
        with pytest.raises(ConfigError, match=rf"engine {engine.name} 7\.8\.9 has no option `{option}`"):
            engine.check_options({option: {int: 2, float: 0.5, bool: True, str: "x"}[OPTIONS[option].kind]}, "7.8.9")
    for option, values in engine.option_values.items():
        wrong = 99 if isinstance(values[0], int) else "no-such"
        with pytest.raises(
            ConfigError, match=rf"engine {engine.name} 7\.8\.9: option `{option}` takes .*, not {wrong}"
        ):
            engine.check_options({option: wrong}, "7.8.9")


def test_arguments_stand_before_options_and_cannot_hide_one():
    engine = ENGINES.get("vllm")
    assert engine.flags({"max_num_seqs": 4}, {"x": 1}) == ["--x", "1", "--max-num-seqs", "4"]
    with pytest.raises(ConfigError, match=r"`max-num-seqs` is also set by the option `max_num_seqs`"):
        engine.flags({"max_num_seqs": 4}, {"max-num-seqs": 8})


def test_drafted_tokens_need_a_way_to_draft_them():
    flags = ENGINES.get("vllm").flags
    assert json.loads(flags({"speculative_decoding": "ngram"}, {})[1]) == {"method": "ngram"}
    for engine in ("vllm", "tensorrt-llm", "mindie"):
        with pytest.raises(ConfigError, match="needs `speculative_decoding`"):
            ENGINES.get(engine).flags({"speculative_tokens": 1}, {})


def test_what_is_no_flag_of_tensorrt_llm_stands_in_a_file(tmp_path):
    engine = ENGINES.get("tensorrt-llm")
    options = {"kv_cache_dtype": "fp8", "prefix_caching": False, "enforce_eager": True, "max_num_seqs": 8}
    serve = Serve(Path("/python"), Path("/model"), "name", 1, options, {"x": 1}, folder=tmp_path)
    command, files = engine.command(serve), engine.files(serve)
    (name,) = files
    assert command[-2:] == ["--extra_llm_api_options", str(tmp_path / name)]
    assert command[command.index("--max_batch_size") + 1] == "8"
    expected = {"kv_cache_config": {"dtype": "fp8", "enable_block_reuse": False}, "cuda_graph_config": None}
    assert yaml.safe_load(files[name]) == expected
    shown = engine.display_command("org/model", options, {"x": 1}, {})
    assert shown.startswith("trtllm-serve org/model --x 1 --max_batch_size 8 --extra_llm_api_options <(echo '{")
    share = {"kv_cache_free_gpu_memory_fraction": 0.5}
    kept = yaml.safe_load(engine.files(Serve(Path("p"), Path("m"), "n", 1, options, share))[name])
    assert kept["kv_cache_config"]["free_gpu_memory_fraction"] == 0.5
    with pytest.raises(ConfigError, match="`extra_llm_api_options` may not be set: Servelab writes this file"):
        engine.flags(options, {"extra_llm_api_options": "my.yaml"})
    assert engine.files(Serve(Path("p"), Path("m"), "n", 1, {"max_num_seqs": 8}, {})) == {}


@pytest.mark.parametrize("engine", ["vllm", "vllm-ascend", "sglang", "tensorrt-llm", "mindie"])
def test_accelerators_that_would_stand_idle_are_refused(engine):
    serve = Serve(Path("/python"), Path("/model"), "name", 1234, {}, {}, count=4)
    with pytest.raises(ConfigError, match=rf"engine {engine} .*4 accelerators"):
        ENGINES.get(engine).command(serve)


@pytest.mark.parametrize(
    ("engine", "version", "verdict", "release"),
    [
        ("vllm", "0.11.0", "error", "vllm 0.11.0"),
        ("vllm", "0.11.1", "warning", "vllm 0.33.0, the newest listed here,"),
        ("tensorrt-llm", "1.2.0rc1", "warning", "tensorrt-llm 1.2.0rc1"),
    ],
)
def test_a_flag_is_refused_for_certain_by_the_list_of_its_release_alone(engine, version, verdict, release):
    found = judge("x", ENGINES.get(engine), ["--no-such"], known_flags(ENGINES.get(engine), version))
    assert (found.verdict, found.saw) == (verdict, f"{release} has no --no-such")


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
