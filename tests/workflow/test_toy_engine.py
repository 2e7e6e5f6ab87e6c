"""An engine in one file: the text of docs/adding.md, put into a copy of the project, serves a study to its end."""

import json
import os
import re
import shlex
import sys

import pandas as pd
import pytest
from engines import doubles
from tokenizers import Tokenizer, models, pre_tokenizers
from unit.made_preflight import make_model
from workspace import ROOT, WORKLOADS, Workspace, tiny_study, yaml

PAGE = (ROOT / "docs/adding.md").read_text()
FLAGS = {"host": "--host", "port": "--port", "model": "--model", "context": "--context"}
SERVER = {
    "version": "1.0",
    "flags": [*FLAGS.values(), "--slots", "--cache"],
    "settings": FLAGS,
    "lines": {
        "ready": ["[00:00:00] serving"],
        "unsupported_argument": ["toy-serve: error: unrecognized arguments: <flags>"],
    },
    "reset_path": "/reset",
    "reset_answer": "",
}
"""What `toy-serve` does: the part of a process double, which streams tokens and keeps prompts until it is reset."""


def block(language, opening):
    """The code block of a language on the page that begins so."""
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if text.startswith(opening)]
    return found


def study(model):
    source = {"kind": "path", "path": str(model), "revision": "1"}
    slots = [
        {"options": {"max_num_seqs": 2, "context_length": 64, "prefix_caching": False}},
        {"options": {"max_num_seqs": 3}, "arguments": {"no-such-flag": None}},
    ]
    tiny = tiny_study()
    tiny["protocol"]["rounds"] = 2
    return tiny | {
        "model": {"id": "toy-model", "format": "safetensors", "source": source},
        "engines": {"toy": {"version": "1.0", "runtime": "host", "lock": "envs/toy.host.yaml"}},
        "baseline": {"engine": "toy"},
        "stages": [{"name": "slots", "candidates": slots}],
        "workloads": ["tiny"],
    }


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A copy of the project with nothing but new files, and `toy-serve` on PATH."""
    model = make_model(tmp_path / "model")
    tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(64)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(model / "tokenizer.json"))
    (tmp_path / "part.json").write_text(json.dumps({**doubles.DEFAULTS, **SERVER}))
    double = shlex.join([sys.executable, doubles.__file__.replace("doubles.py", "double/serve.py")])
    program = tmp_path / "bin/toy-serve"
    program.parent.mkdir()
    said = '[ "$1" = --version ] && exec echo 1.0'
    program.write_text(f'#!/bin/sh\n{said}\nexec {double} {tmp_path}/part.json "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    workspace = Workspace.create(tmp_path / "project", shared=())  # names by content would stay behind in the project's
    workspace.write("scripts/servelab/engines/adapters/toy.py", block("python", '"""Toy'))
    workspace.write("envs/toy.host.yaml", block("yaml", "name: toy-serve"))
    workspace.write("config/workloads.yaml", yaml.safe_dump({"tiny": WORKLOADS["tiny"]}))
    workspace.write_study(study(model))
    return workspace


@pytest.mark.slow
def test_the_engine_of_the_page_is_measured_for_real(toy):
    planned = toy.snakemake("--dry-run")
    assert "toy-serve --model toy-model" in planned, planned[-3000:]
    toy.snakemake()
    table = pd.read_parquet(toy.folder / "results/studies/tiny/stages/slots/table.parquet")
    outcome = {row["candidate"]: (row["outcome"], row["message"]) for _, row in table.iterrows()}
    assert sorted(result for result, _ in outcome.values()) == ["failed", "ok", "ok"], outcome
    (refused,) = [message for result, message in outcome.values() if result == "failed"]
    assert "unrecognized arguments: --no-such-flag" in refused
    runs = [run for run in table["run_id"] if (toy.folder / f"results/runs/{run}/requests.parquet").exists()]
    records = pd.concat(pd.read_parquet(toy.folder / f"results/runs/{run}/requests.parquet") for run in runs)
    assert len(records) == 2 * 2 * 4  # runs, rounds, requests
    assert records["error"].isna().all()
    assert set(records["output_tokens"]) == {4}
    assert not records["cached_tokens"].any(), "a round began with what the one before had left"
