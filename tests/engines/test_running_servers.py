"""Real servers that already run: metrics move as requests say they must, and `servelab bench` measures them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from servelab.bench.bench_result import Bench
from servelab.measure.telemetry import SOURCES, Watched

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(installed, tmp_path_factory):
    """A server for all of these tests: each looks at what its own requests change."""
    server = installed.server(tmp_path_factory.mktemp("served") / "server.log")
    source = SOURCES.get("server")(Watched([], installed.engine, lambda: [(server.base_url, server.process.pid)]))
    try:
        server.start()
        yield installed, server, partial(figures_of, source)
    finally:
        source.close()
        server.stop()


PROMPT = list(range(1000, 1300))


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
