"""An engine in one file: the text of docs/adding.md, put into a copy of the project, serves a study to its end."""

import os
import re
import sys

import pandas as pd
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from workspace import ROOT, WORKLOADS, Workspace, yaml

PAGE = (ROOT / "docs/adding.md").read_text()
SERVER = '''\
#!{python}
"""Streams made-up tokens, keeps the beginnings of prompts until it is told to forget them."""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser(prog="toy-serve", allow_abbrev=False)
parser.add_argument("--version", action="version", version="1.0")
parser.add_argument("--model", type=Path, required=True)
parser.add_argument("--host", required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--slots", type=int, default=4)
parser.add_argument("--context", type=int, default=128)
parser.add_argument("--cache", action=argparse.BooleanOptionalAction, default=True)
arguments = parser.parse_args()
if not (arguments.model / "config.json").exists():
    raise SystemExit(f"[00:00:00] no model at {{arguments.model}}")
kept = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200 if self.path == "/health" else 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{{}}")
        if self.path == "/reset":
            kept.clear()
            self.answer(200)
            return
        prompt = tuple(body["prompt"])
        cached = len(prompt) if arguments.cache and prompt in kept else 0
        kept.add(prompt)
        usage = {{"prompt_tokens": len(prompt), "completion_tokens": body["max_tokens"]}}
        usage["prompt_tokens_details"] = {{"cached_tokens": cached}}
        events = [{{"choices": [{{"index": 0, "text": " a", "finish_reason": None}}]}}] * body["max_tokens"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in [*events, {{"choices": [], "usage": usage}}]:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")
        self.wfile.write(b"data: [DONE]\\n\\n")
        self.close_connection = True

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *ignored):
        pass


print(f"[00:00:00] serving with {{arguments.slots}} slots", flush=True)
ThreadingHTTPServer((arguments.host, arguments.port), Handler).serve_forever()
'''


def block(language, opening):
    """The code block of a language on the page that begins so."""
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if text.startswith(opening)]
    return found


def study(model):
    return {
        "study": "tiny",
        "title": "Toy",
        "model": {
            "id": "toy-model",
            "format": "safetensors",
            "source": {"kind": "path", "path": str(model), "revision": "1"},
        },
        "hardware": {"accelerator": "cpu", "device": "cpu", "per_node": 1},
        "engines": {"toy": {"version": "1.0", "runtime": "host", "lock": "envs/toy.host.yaml"}},
        "objective": {"metric": "total_tokens_per_s", "on": "tiny", "margin_percent": 1000},
        "protocol": {"warmup_requests": 1, "rounds": 2, "max_others_cpu_percent": 100, "startup_timeout_s": 60},
        "search": {"strategy": "staged"},
        "baseline": {"engine": "toy"},
        "stages": [
            {
                "name": "slots",
                "candidates": [
                    {"options": {"max_num_seqs": 2, "context_length": 64, "prefix_caching": False}},
                    {"options": {"max_num_seqs": 3}, "arguments": {"no-such-flag": None}},
                ],
            },
        ],
        "workloads": ["tiny"],
    }


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A copy of the project with nothing but new files, and `toy-serve` on PATH."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").touch()
    tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(64)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(model / "tokenizer.json"))
    program = tmp_path / "bin/toy-serve"
    program.parent.mkdir()
    program.write_text(SERVER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    workspace = Workspace.create(tmp_path / "project")
    for name in ("envs", "models"):  # its own, since names by content would stay behind in the project's
        (workspace.folder / "results" / name).unlink()
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
