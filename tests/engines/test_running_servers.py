"""Real servers that already run: metrics move as requests say they must, and `servelab bench` measures them."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from servelab.assets.datasets import Dataset, fetch_dataset
from servelab.assets.model_files import load_model, load_tokenizer
from servelab.assets.workloads import WORKLOADS
from servelab.bench.bench_result import Bench
from servelab.core.identity import file_sha256
from servelab.measure.load import LoadPlan
from servelab.measure.load.sender import send_load
from servelab.measure.telemetry import SOURCES, Watched

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(installed, tmp_path_factory):
    """A server for all of these tests: each looks at what its own requests change."""
    server = installed.server(tmp_path_factory.mktemp("served") / "server.log")
    source = SOURCES.get("server")(Watched([], installed.engine, lambda: (server.base_url, server.process.pid)))
    try:
        server.start()
        yield installed, server, partial(figures_of, source)
    finally:
        source.close()
        server.stop()


PROMPT = list(range(1000, 1300))
BLOCK_TOKENS = 128
"""vLLM on a CPU caches whole blocks of so many."""


def test_server_metrics_follow_the_requests(served):
    installed, server, figures = served
    before = figures()
    with httpx.Client(base_url=server.base_url, trust_env=False, timeout=120) as client:
        body = {
            "model": "SmolLM2-135M-Instruct",
            "prompt": PROMPT,
            "temperature": 0,
            **installed.engine.request_body,
        }
        for _ in range(3):
            client.post("/v1/completions", json={**body, "max_tokens": 8}).raise_for_status()
        generated = before["generation_tokens_total"] + 24
        after = until(figures, lambda now: now["generation_tokens_total"] >= generated)
        with client.stream("POST", "/v1/completions", json={**body, "max_tokens": 2000, "stream": True}) as answer:
            parts = answer.iter_bytes()  # kept: one that is collected closes the connection, which ends the request
            next(parts)
            during = until(figures, lambda now: now["requests_running"] == 1)
    until(figures, lambda now: now["requests_running"] == 0)
    drafts = {"drafts_total", "draft_tokens_total", "accepted_draft_tokens_total"}  # vLLM prints them where it drafts
    assert set(before) | drafts == set(installed.engine.metric_names)
    moved = {metric: after[metric] - before[metric] for metric in before}
    assert moved["generation_tokens_total"] == 24
    assert moved["prompt_tokens_total"] == moved["prefix_cache_query_tokens_total"] == 900
    assert 2 * 250 <= moved["prefix_cache_hit_tokens_total"] < 2 * 300, "two of three requests find the first's prompt"
    assert during["requests_waiting"] == 0
    if "kv_cache_usage_fraction" in during:
        assert 0 < during["kv_cache_usage_fraction"] < 1
    if "process_start_unix_s" in during:
        assert during["process_start_unix_s"] == before["process_start_unix_s"] <= time.time()


def test_a_server_reuses_what_shared_prefixes_share(served, tmp_path):
    installed, server, figures = served
    kind = WORKLOADS.get("shared_prefix")
    given = {"num_requests": 12, "seed": 3, "groups": 2, "prefix_tokens": 256, "suffix_tokens": 64, "output_tokens": 2}
    _, _, tokenizer_json = load_model(installed.model_json)
    made = kind.make(kind.Parameters.model_validate(given), load_tokenizer(tokenizer_json), None)
    requests = tmp_path / "requests.parquet"
    pq.write_table(made, requests)
    before = figures()
    plan = {"base_url": server.base_url, "endpoint": "completions", "model": "SmolLM2-135M-Instruct"}
    records, _, _ = send_load(
        LoadPlan(**plan, requests=requests, max_concurrency=1, body=dict(installed.engine.request_body))
    )
    assert set(records["error"].to_pylist()) == {None}
    prompted = before["prefix_cache_query_tokens_total"] + 12 * 320
    after = until(figures, lambda now: now["prefix_cache_query_tokens_total"] >= prompted)
    moved = {metric: after[metric] - before[metric] for metric in before}
    measured = moved["prefix_cache_hit_tokens_total"] / moved["prefix_cache_query_tokens_total"]
    assert measured == pytest.approx(kind.shared_input(given), abs=0.02)


def test_a_later_turn_holds_the_servers_answer_and_finds_what_was_said_in_its_cache(served, tmp_path):
    installed, server, _ = served
    _, _, tokenizer_json = load_model(installed.model_json)
    talks = tmp_path / "talks.jsonl"
    with talks.open("w") as file:
        for number in range(2):
            texts = [f"{number}.{turn}: " + "tell me about rivers and hills " * 12 for turn in range(6)]
            said = [{"role": ("user", "assistant")[turn % 2], "content": text} for turn, text in enumerate(texts)]
            file.write(json.dumps({"messages": said}) + "\n")
    dataset = Dataset(
        title="Talks",
        file=talks.name,
        license="none",
        size_bytes=talks.stat().st_size,
        sha256=file_sha256(talks),
        sources=[{"kind": "path", "path": str(talks)}],
    )
    kind = WORKLOADS.get("conversations")
    given = {"num_requests": 6, "seed": 1, "output_tokens": 24, "dataset_sha256": dataset.sha256}
    stored = fetch_dataset("talks", dataset, tmp_path / "stored")
    made = kind.make(kind.Parameters.model_validate(given), load_tokenizer(tokenizer_json), stored)
    requests = tmp_path / "requests.parquet"
    pq.write_table(made, requests)
    plan = {"base_url": server.base_url, "endpoint": "chat", "model": "SmolLM2-135M-Instruct"}
    records, _, _ = send_load(
        LoadPlan(**plan, requests=requests, max_concurrency=1, body=dict(installed.engine.request_body))
    )
    assert set(records["error"].to_pylist()) == {None}
    rows = records.to_pylist()
    assert [row["turn"] for row in rows] == [0, 1, 2] * 2
    for before, row in itertools.pairwise(rows):
        template = row["input_tokens"] - row["input_tokens_asked"]
        assert 0 < template < 100, "the answer before, as long as it was asked for, is in the prompt"
        if row["turn"] and row["cached_tokens"] is not None:
            assert row["cached_tokens"] > before["input_tokens"] - BLOCK_TOKENS


def test_bench_measures_a_server_by_its_address(served, tmp_path):
    _, server, _ = served
    words = ("--concurrency", "1", "4", "--visits", "2", "--requests", "8", "--input-tokens", "40")
    done = subprocess.run(
        [
            *(
                sys.executable,
                "scripts/servelab_command.py",
                "bench",
                server.base_url,
                "--output",
                str(tmp_path / "bench"),
            ),
            *(*words, "--output-tokens", "12", "--timeout", "600"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = Bench.read(tmp_path / "bench/bench.json")
    assert found.load.is_length_forced and found.load.mean_output_tokens == 12
    assert found.load.mean_input_tokens == pytest.approx(40, rel=0.15)
    assert found.asked.longest_tokens
    one, four = found.points
    assert (one.failed, four.failed) == (0, 0)
    assert one.validity != "invalid" and four.validity != "invalid", one.failures + four.failures
    assert len(done.stdout.splitlines()) == 5


def figures_of(source):
    """On a busy machine a server may answer later than telemetry waits for it."""
    for _ in range(60):
        with contextlib.suppress(TimeoutError, httpx.TimeoutException):
            return {reading.metric: reading.value for reading in source.read()}
    raise AssertionError("the server never answered in time")


def until(figures, condition):
    """The figures once they fulfil the condition, which a server brings up to date a moment after it answers."""
    for _ in range(300):
        if condition(now := figures()):
            return now
        time.sleep(0.1)
    raise AssertionError(f"never so: {now}")
