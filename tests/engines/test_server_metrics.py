"""The metrics of real servers move as requests say they must."""

from __future__ import annotations

import contextlib
import time

import httpx

from servelab.measure.telemetry import SOURCES, Watched

PROMPT = list(range(1000, 1300))


def test_server_metrics_follow_the_requests(installed, tmp_path):
    server = installed.server(tmp_path / "server.log")
    watched = Watched([], installed.engine, lambda: (server.base_url, server.process.pid))
    source = SOURCES.get("server")(watched)

    def figures():
        """On a busy machine a server may answer later than telemetry waits for it."""
        for _ in range(60):
            with contextlib.suppress(TimeoutError, httpx.TimeoutException):
                return {reading.metric: reading.value for reading in source.read()}
        raise AssertionError("the server never answered in time")

    try:
        server.start()
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
            after = until(figures, lambda now: now["generation_tokens_total"] >= 24)
            with client.stream("POST", "/v1/completions", json={**body, "max_tokens": 2000, "stream": True}) as answer:
                parts = answer.iter_bytes()  # kept: one that is collected closes the connection, which ends the request
                next(parts)
                during = until(figures, lambda now: now["requests_running"] == 1)
        until(figures, lambda now: now["requests_running"] == 0)
    finally:
        source.close()
        server.stop()
    assert set(before) == set(installed.engine.metric_names)
    moved = {metric: after[metric] - before[metric] for metric in before}
    assert moved["generation_tokens_total"] == 24
    assert moved["prompt_tokens_total"] == moved["prefix_cache_query_tokens_total"] == 900
    assert 2 * 250 <= moved["prefix_cache_hit_tokens_total"] < 2 * 300, "two of three requests find the first's prompt"
    assert during["requests_waiting"] == 0
    if "kv_cache_usage_fraction" in during:
        assert 0 < during["kv_cache_usage_fraction"] < 1
    if "process_start_unix_s" in during:
        assert during["process_start_unix_s"] == before["process_start_unix_s"] <= time.time()


def until(figures, condition):
    """The figures once they fulfil the condition, which a server brings up to date a moment after it answers."""
    for _ in range(300):
        if condition(now := figures()):
            return now
        time.sleep(0.1)
    raise AssertionError(f"never so: {now}")
