"""Flags by an engine's own word: read from helps as argparse and click print them, asked without an accelerator."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from made_preflight import make_engine

from servelab.core.errors import ServelabError
from servelab.engines import llama_cpp_server
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import RUNTIMES
from servelab.search.preflight.options import known_flags, parse_help

CLICK = """\
Usage: serve [OPTIONS] MODEL

  Serves. Mind --no-option of this text.

Options:
  --tp_size, --tensor_parallel_size INTEGER
                                  Tensor parallelism size, see --pp_size.
  --backend [pytorch|tensorrt]    The backend.
  --trust_remote_code             Flag for HF transformers.
  --metadata / --no-metadata      --text of it.
  --help                          Show this message and exit.
"""


def test_flags_of_a_click_help():
    assert parse_help(CLICK) == {
        *("--tp_size", "--tensor_parallel_size", "--backend", "--trust_remote_code", "--metadata", "--no-metadata"),
        "--help",
    }


def test_flags_of_an_argparse_help():
    parser = argparse.ArgumentParser(description="--nothing")
    parser.add_argument("model")
    parser.add_argument("-tp", "--tensor-parallel-size", help="--nothing\n--at-all")
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction)
    parser.add_argument("--kv-cache-dtype", choices=["auto", "a-very-long-choice-that-fills-the-whole-line-of-a-help"])
    flags = {"-tp", "--tensor-parallel-size", "--enforce-eager", "--no-enforce-eager", "--kv-cache-dtype"}
    assert parse_help(parser.format_help()) == {"-h", "--help", *flags}


def test_launcher_of_llama_cpp_lists_every_flag_it_takes():
    (command,) = ENGINES.get("llama.cpp").help_commands(Path(sys.executable))
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    own = {*llama_cpp_server.VALUES, *llama_cpp_server.SWITCHES, *llama_cpp_server.SHORT, "--flash-attn"}
    assert parse_help(text) == {"-h", "--help", *own}


@pytest.mark.parametrize(
    ("engine", "given", "known"),
    [
        ("vllm", "--max_num_seqs", True),
        ("vllm", "--compilation-config.mode", True),
        ("vllm", "-O3", True),
        ("vllm", "--max-seqs", False),
        ("sglang", "--max_num_seqs", False),
    ],
)
def test_spellings_that_a_release_takes(engine, given, known):
    flags = {"--max-num-seqs", "--compilation-config", "-O"}
    assert ENGINES.get(engine).knows(given, flags) is known


@pytest.fixture
def environment(tmp_path):
    def build(double=None):
        lock = make_engine(tmp_path)
        built = RUNTIMES.get("host").build(ENGINES.get("vllm"), lock, tmp_path / "env")
        if double:
            (tmp_path / "python").write_text(double)
        return built

    return build


def test_older_release_prints_everything_at_the_shorter_command(environment, tmp_path):
    shell = '#!/bin/sh\n[ "$3" = --help ] || { echo "error: ignored explicit argument" >&2; exit 2; }\n'
    built = environment(f"{shell}printf '  --model MODEL  text\\n'\n")
    assert known_flags(ENGINES.get("vllm"), built, tmp_path / "env/environment.json") == {"--model"}


@pytest.mark.parametrize(
    ("double", "reason"),
    [
        (
            "#!/bin/sh\necho 'Traceback' >&2\necho 'ImportError: libcuda.so.1' >&2\nexit 1\n",
            "ImportError: libcuda.so.1",
        ),
        ("#!/bin/sh\necho 'no flag here'\n", "--help` lists no flag"),
        ("#!/no/such/interpreter\n", "No such file or directory"),
    ],
)
def test_engine_that_cannot_be_asked_says_why(environment, tmp_path, double, reason):
    with pytest.raises(ServelabError, match=reason):
        known_flags(ENGINES.get("vllm"), environment(double), tmp_path / "env/environment.json")
    assert not (tmp_path / "env/flags.json").exists()


def test_no_accelerator_and_no_settings_of_the_shell_are_shown(environment, tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_SETTING", "1")
    built = environment("#!/bin/sh\n[ -z \"$VLLM_SETTING\" ] && printf '  --model MODEL\\n'\n")
    assert known_flags(ENGINES.get("vllm"), built, tmp_path / "env/environment.json") == {"--model"}
