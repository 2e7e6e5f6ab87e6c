"""Every check: silent on healthy runs, and telling on a run that has the fault it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from made_run import REQUESTS, ROUNDS, TEMPLATE_TOKENS, evidence, records, spec, telemetry

from servelab.machine.rates import published_rates
from servelab.measure.load import LoadStats
from servelab.results.checks import CHECKS, Evidence, check_run, verdict
from servelab.results.physical_limit import DecodeStep, PhysicalLimit

Rows = list[dict[str, Any]]
OPEN = {"max_concurrency": None, "request_rate": 4.0}
OVERLOAD = {"max_concurrency": None, "request_rate": 60.0}


def broken(change: Callable[[dict[str, Any]], dict[str, Any]], every: int = 1, **run: Any) -> Evidence:
    """A run in which every so many-th request is changed."""
    rows = records(spec(**run).protocol)
    rows = [row | change(row) if index % every == 0 else row for index, row in enumerate(rows)]
    return evidence(rows, spec(**run))


def with_rounds(*values: float) -> Evidence:
    """A run whose objective had these values."""
    made = evidence()
    return replace(made, rounds={**made.rounds, "total_tokens_per_s": dict(enumerate(values))})


def with_stats(**stats: Any) -> Evidence:
    one = LoadStats(wall_s=4.0)
    return evidence(client=[one, one.model_copy(update=stats), one])


def with_telemetry(**values: float) -> Evidence:
    return evidence(samples=telemetry(records(spec().protocol), **values))


def with_one_busy_round() -> Evidence:
    table = telemetry(records(spec().protocol))
    table.loc[(table["metric"] == "others_cpu_percent") & (table["round"] == 1), "value"] = 20
    return evidence(samples=table)


def with_restart() -> Evidence:
    table = telemetry(records(spec().protocol))
    moved = (table["metric"] == "process_start_unix_s") & (table["round"] == 1) & (table["time_s"] > 0.5)
    table.loc[moved, "value"] += 30
    return evidence(samples=table)


def with_hits(share: float, rounds: tuple[int, ...] = (0, 1, 2)) -> Evidence:
    """A run in whose rounds the server's metrics tell so many hits; its usage tells none."""
    rows = [row | {"cached_tokens": None} for row in records(spec().protocol)]
    table = telemetry(rows)
    queries = table[table["metric"] == "prefix_cache_query_tokens_total"].set_index(["round", "time_s"])["value"]
    hits = (table["metric"] == "prefix_cache_hit_tokens_total") & table["round"].isin(rounds)
    moments = table.loc[hits, ["round", "time_s"]].itertuples(index=False, name=None)
    table.loc[hits, "value"] = [share * queries[moment] for moment in moments]
    return evidence(rows, samples=table)


def reading(share: float, **values: float) -> Evidence:
    """A run whose decode steps read this share of an H100 SXM's bandwidth."""
    made, rates = with_telemetry(**values), published_rates(SXM)
    assert rates is not None
    slow = {"itl_ms": made.summary["itl_ms"] | {"median": 40.0}}
    step = DecodeStep(SXM, rates, share * 0.04 * rates.memory_bytes_per_s, kv_bytes=0.0, operations=1.0)
    return replace(made, summary={**made.summary, **slow}, limit=replace(made.limit, step=step))


SXM = "NVIDIA H100 80GB HBM3"
OWN_PROMPTS = {"kind": "prompts"}
SHARED_PREFIX = {
    "kind": "shared_prefix",
    "parameters": {
        "num_requests": 40,
        "groups": 2,
        "prefix_tokens": 150,
        "suffix_tokens": 50,
        "output_tokens": 1,
        "seed": 1,
    },
}
"""38 of 40 prompts begin with 150 of their 200 tokens as an earlier one did: 71 %."""
LITTLE_SHARED = {
    "kind": "shared_prefix",
    "parameters": SHARED_PREFIX["parameters"] | {"prefix_tokens": 50, "suffix_tokens": 150},
}


def cached(rounds: tuple[int, ...]) -> Evidence:
    return broken(lambda row: {"cached_tokens": row["input_tokens"] - 1} if row["round"] in rounds else {})


def late(row: dict[str, Any]) -> dict[str, Any]:
    """Started 100 ms after it was due, and all that follows with it."""
    times = ("started_s", "sent_s", "first_token_s", "last_token_s", "end_s")
    return {name: row[name] + 0.1 for name in times}


def at_once(row: dict[str, Any]) -> dict[str, Any]:
    """The whole answer in its last event."""
    return {"first_token_s": row["last_token_s"], "chunks": 1, "chunk_gaps_ms": []}


def failed(error: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda _: {"error": error}


def limited(highest: float, certain: float) -> Evidence:
    """A run with these shares of its physical limit."""
    return evidence(limit=PhysicalLimit("made", 1.0, 1.0, highest, highest, certain))


LATENCY = {"objective": "ttft_ms", "protocol": OPEN}
FAULTS: dict[str, list[tuple[str, Callable[[], Evidence]]]] = {
    "failed_requests": [
        ("suspect", lambda: broken(failed("closed_early: x"), every=50)),
        ("invalid", lambda: broken(failed("closed_early: x"), every=2)),
        ("invalid", lambda: evidence([])),
    ],
    "output_length": [
        ("suspect", lambda: broken(lambda row: {"output_tokens": row["output_tokens"] - 1}, every=60)),
        ("invalid", lambda: broken(lambda row: {"output_tokens": row["output_tokens"] // 2})),
    ],
    "unseen_tokens": [
        ("suspect", lambda: broken(lambda _: {"hidden_tokens": 3})),
        ("suspect", lambda: broken(at_once)),
    ],
    "input_token_count": [
        ("invalid", lambda: broken(lambda row: {"input_tokens": row["input_tokens_asked"] - 15})),
        ("invalid", lambda: broken(lambda row: {"input_tokens": row["input_tokens_asked"] + 5000})),
    ],
    "input_token_spread": [
        ("suspect", lambda: broken(lambda row: {"input_tokens": min(row["input_tokens"], 128)}, every=3)),
    ],
    "token_count_varies": [
        ("suspect", lambda: broken(lambda row: {"input_tokens": row["input_tokens"] + row["round"]}, every=30)),
    ],
    "more_events_than_tokens": [("suspect", lambda: broken(lambda row: {"chunks": 2 * row["output_tokens"] + 2}))],
    "times_in_order": [
        ("invalid", lambda: broken(lambda row: {"first_token_s": row["sent_s"] - 0.5}, every=30)),
        ("invalid", lambda: broken(lambda row: {"chunk_gaps_ms": [*row["chunk_gaps_ms"], 70.0]}, every=30)),
    ],
    "zero_itl": [
        ("suspect", lambda: broken(at_once, every=10)),
        ("invalid", lambda: broken(at_once)),
    ],
    "in_flight_above_limit": [
        ("invalid", lambda: evidence(run=spec(protocol={"max_concurrency": 3}), rows=records(spec().protocol))),
    ],
    "rate_below_capacity": [
        ("suspect", lambda: evidence(run=spec(protocol=OPEN))),
        ("suspect", lambda: evidence(run=spec(protocol=OPEN, objective="goodput_per_s", slos={"ttft_ms": 1e6}))),
    ],
    "queue_grows": [
        ("suspect", lambda: evidence(run=spec(objective="ttft_ms", protocol=OVERLOAD))),
        ("invalid", lambda: with_stats(saturated=True)),
    ],
    "concurrency_below_capacity": [
        ("suspect", lambda: with_telemetry(requests_waiting=0, gpu_utilization_percent=20)),
    ],
    "shorter_than_asked": [("suspect", lambda: evidence(run=spec(protocol={"duration_s": 600})))],
    "schedule_delay": [
        ("suspect", lambda: broken(late, protocol=OPEN)),
        ("suspect", lambda: broken(late, every=10)),
    ],
    "client_cpu": [("suspect", lambda: with_stats(cpu_s=7.9, processes=2))],
    "client_lag": [("suspect", lambda: with_stats(unread_p99_ms=80))],
    "server_restarted": [
        ("invalid", with_restart),
        ("invalid", lambda: evidence(server_starts=ROUNDS + 1)),
    ],
    "cache_hits": [
        ("invalid", lambda: cached((1, 2))),
        ("suspect", lambda: cached((0, 1, 2))),
        ("suspect", lambda: replace(with_hits(0.75), spec=spec(workload=LITTLE_SHARED))),
        ("invalid", lambda: replace(with_hits(0.75, (1,)), spec=spec(workload=SHARED_PREFIX))),
        ("invalid", lambda: with_hits(0.9, rounds=(2,))),
        ("suspect", lambda: with_hits(0.9)),
    ],
    "device_speed": [
        ("suspect", lambda: reading(0.51)),
        ("suspect", lambda: reading(0.4, throttle_reasons=4)),
    ],
    "disturbed_round": [("suspect", lambda: with_rounds(297.2, 298.0, 175.7, 309.4))],
    "still_warming_up": [("suspect", lambda: with_rounds(150, 301, 299))],
    "busy_machine": [
        ("suspect", lambda: with_telemetry(others_cpu_percent=30)),
        ("suspect", lambda: with_telemetry(steal_cpu_percent=12)),
        ("suspect", with_one_busy_round),
    ],
    "above_physical_limit": [
        ("invalid", lambda: limited(highest=1.3, certain=1.1)),
        ("suspect", lambda: limited(highest=1.3, certain=0.9)),
    ],
    "clocks_throttled": [("suspect", lambda: with_telemetry(throttle_reasons=0x20 | 4))],
}
"""Check → runs that have its fault, with the level that each deserves."""

PASSES: dict[str, list[Callable[[], Evidence]]] = {
    "failed_requests": [evidence],
    "output_length": [evidence],
    "unseen_tokens": [evidence],
    "input_token_count": [evidence],
    "input_token_spread": [lambda: broken(lambda row: {"input_tokens": row["input_tokens"] + 2}, every=7)],
    "token_count_varies": [evidence],
    "more_events_than_tokens": [lambda: broken(lambda row: {"chunks": row["output_tokens"] + 1})],
    "times_in_order": [lambda: broken(lambda row: {"chunk_gaps_ms": []})],
    "zero_itl": [lambda: broken(at_once, every=200)],
    "in_flight_above_limit": [evidence],
    "rate_below_capacity": [
        lambda: evidence(run=spec(protocol=OVERLOAD)),
        lambda: evidence(run=spec(protocol=OPEN, objective="goodput_per_s", slos={"ttft_ms": 60.0})),
    ],
    "queue_grows": [lambda: evidence(run=spec(**LATENCY))],
    "concurrency_below_capacity": [lambda: with_telemetry(requests_waiting=0)],
    "shorter_than_asked": [
        lambda: evidence(run=spec(protocol={"duration_s": 1.0})),
        lambda: evidence(run=spec(protocol={"duration_s": 600}), client=[LoadStats(requests_not_sent=3)] * ROUNDS),
    ],
    "schedule_delay": [evidence, lambda: evidence(run=spec(protocol=OPEN))],
    "client_cpu": [lambda: with_stats(cpu_s=7.9, processes=4)],
    "client_lag": [lambda: with_stats(unread_p99_ms=30)],
    "server_restarted": [evidence, lambda: evidence(server_starts=ROUNDS)],
    "cache_hits": [
        evidence,
        lambda: with_hits(TEMPLATE_TOKENS / 200),
        lambda: replace(cached((0, 1, 2)), spec=spec(workload=OWN_PROMPTS)),
        lambda: replace(with_hits(0.75), spec=spec(workload=SHARED_PREFIX)),
        lambda: replace(with_hits(0.0), spec=spec(workload=SHARED_PREFIX)),
    ],
    "device_speed": [lambda: reading(0.6)],
    "disturbed_round": [lambda: with_rounds(100, 80, 125, 95), lambda: with_rounds(150, 301, 299)],
    "still_warming_up": [lambda: with_rounds(290, 301, 299), lambda: with_rounds(297.2, 298.0, 175.7, 309.4)],
    "busy_machine": [evidence],
    "above_physical_limit": [lambda: limited(highest=0.9, certain=0.8)],
    "clocks_throttled": [lambda: with_telemetry(throttle_reasons=4)],
}
"""Check → runs that it has to call ok."""


def test_every_check_has_examples():
    assert set(FAULTS) == set(PASSES) == set(CHECKS.names())


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, faults in FAULTS.items() for number in range(len(faults))]
)
def test_fault_is_found(name, number):
    level, make = FAULTS[name][number]
    saw = CHECKS.get(name).look(make())
    assert saw.level == level, saw.text
    assert level in CHECKS.get(name).fails_as and saw.text


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, passes in PASSES.items() for number in range(len(passes))]
)
def test_what_is_no_fault_passes(name, number):
    saw = CHECKS.get(name).look(PASSES[name][number]())
    assert saw.level == "ok", saw.text


def test_a_slow_device_comes_with_the_cause_that_telemetry_shows():
    saw = CHECKS.get("device_speed").look(reading(0.5, throttle_reasons=0))
    assert "50 % of NVIDIA H100 SXM" in saw.text and "another tenant?" in saw.text
    saw = CHECKS.get("device_speed").look(reading(0.5, throttle_reasons=4))
    assert "power cap in 100 % of the samples" in saw.text
    assert "another tenant?" not in saw.text


HEALTHY = {
    "closed loop": {},
    "all at once": {"protocol": {"max_concurrency": None}},
    "overloaded, for throughput": {"protocol": OVERLOAD},
    "open loop, for latency": LATENCY,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("load", HEALTHY)
def test_healthy_run_raises_nothing(load, seed):
    findings = check_run(evidence(run=spec(**HEALTHY[load]), seed=seed, noise=0.03))
    assert [row for row in findings if row["level"] not in ("ok", "not applicable")] == []
    assert verdict(findings) == ("ok", None)


@pytest.mark.parametrize("name", CHECKS.names())
def test_nothing_to_look_at_is_said(name):
    """No telemetry, no client statistics, and records without what a server may leave out."""
    empty = dict.fromkeys(("input_tokens", "cached_tokens", "started_s", "unread_ms")) | {"chunk_gaps_ms": []}
    rows = [row | empty for row in records(spec().protocol)]
    for some in (rows, rows[:REQUESTS]):  # three rounds, and one
        bare = evidence(some, client=(), server_starts=None, samples=telemetry([]))
        assert CHECKS.get(name).look(bare).level in ("ok", "not applicable")


def test_settle_requests_load_the_server_and_count_for_nothing_else():
    def settle(row):
        return {"phase": "settle", "error": "closed_early: x"} if row["request_index"] < 4 else {}

    assert CHECKS.get("failed_requests").look(broken(settle)).level == "ok"


def test_verdict_is_the_worst_and_names_all_that_failed():
    def finding(check, level):
        return {"check": check, "level": level, "saw": f"saw {check}", "action": None}

    level, note = verdict([finding("a_b", "suspect"), finding("c", "ok"), finding("d", "invalid")])
    assert (level, note) == ("invalid", "d: saw d; a b: saw a_b")
    assert verdict([finding("c", "ok"), finding("e", "not applicable")]) == ("ok", None)
