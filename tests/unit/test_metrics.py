"""Every figure follows from the records: recomputed here in plain Python, apart from the code under test."""

from __future__ import annotations

import itertools
import random
import statistics

import pyarrow as pa
import pytest

from servelab import metrics, schemas
from servelab.errors import ConfigError
from servelab.metrics import METRICS


def record(**values) -> dict:
    """A request of 10 + 3 tokens: sent at 1 s, first token at 1.2 s, then gaps of 50 and 100 ms."""
    return {
        "round": 0,
        "request_index": 0,
        "scheduled_s": 0.0,
        "sent_s": 1.0,
        "first_token_s": 1.2,
        "last_token_s": 1.35,
        "end_s": 1.4,
        "input_tokens_asked": 8,
        "input_tokens": 10,
        "cached_tokens": None,
        "output_tokens_asked": 3,
        "output_tokens": 3,
        "chunks": 3,
        "chunk_gaps_ms": [50.0, 100.0],
        "finish_reason": "length",
        "http_status": 200,
        "error": None,
    } | values


REFUSED = {
    "sent_s": None,
    "first_token_s": None,
    "last_token_s": None,
    "input_tokens": None,
    "output_tokens": None,
    "chunk_gaps_ms": [],
    "http_status": None,
    "error": "connect_failed: refused",
}


def table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS)


def summary(rows: list[dict]) -> dict[str, dict]:
    return {row["metric"]: row for row in metrics.summarise(metrics.RunData(table(rows)))}


# Each metric's observations of a round, from its rows, by the formulas of vLLM's calculate_metrics.
def successes(rows):
    return [row for row in rows if row["error"] is None]


def duration(rows):
    return max(row["end_s"] for row in rows) - min(row["sent_s"] for row in rows if row["sent_s"] is not None)


OBSERVATIONS = {
    "duration_s": lambda rows: [duration(rows)],
    "requests_per_s": lambda rows: [len(successes(rows)) / duration(rows)],
    "output_tokens_per_s": lambda rows: [sum(row["output_tokens"] for row in successes(rows)) / duration(rows)],
    "total_tokens_per_s": lambda rows: [
        sum(row["input_tokens"] + row["output_tokens"] for row in successes(rows)) / duration(rows)
    ],
    "success_rate": lambda rows: [len(successes(rows)) / len(rows)],
    "ttft_ms": lambda rows: [1000 * (row["first_token_s"] - row["sent_s"]) for row in successes(rows)],
    "e2el_ms": lambda rows: [1000 * (row["last_token_s"] - row["sent_s"]) for row in successes(rows)],
    "tpot_ms": lambda rows: [
        1000 * (row["last_token_s"] - row["first_token_s"]) / (row["output_tokens"] - 1)
        for row in successes(rows)
        if row["output_tokens"] > 1
    ],
    "itl_ms": lambda rows: [gap for row in successes(rows) for gap in row["chunk_gaps_ms"]],
}


def random_run(seed: int) -> list[dict]:
    draw = random.Random(seed)
    rows = []
    for round_number in range(3):
        for index in range(40):
            sent = draw.uniform(0, 5)
            gaps = [draw.uniform(1, 200) for _ in range(draw.randint(0, 20))]
            first = sent + draw.uniform(0.01, 2)
            last = first + sum(gaps) / 1000
            times = {"sent_s": sent, "first_token_s": first, "last_token_s": last, "end_s": last + 0.01}
            tokens = {"input_tokens": draw.randint(1, 500), "output_tokens": len(gaps) + 1}
            failed = draw.choice([{}, {}, {"error": "closed_early: x"}, REFUSED | {"end_s": draw.uniform(0, 9)}])
            place = {"round": round_number, "request_index": index}
            rows.append(record(chunk_gaps_ms=gaps, **times, **tokens, **place) | failed)
    return table(rows).to_pylist()  # gaps as the table's float32 holds them


def percentile(values, percent):
    """Linear interpolation between closest ranks."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", METRICS.names())
def test_requests_recompute_every_figure(name, seed):
    rows = random_run(seed)
    rounds = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row["round"])]
    per_round = [OBSERVATIONS[name](group) for group in rounds]
    values = [value for group in per_round for value in group]
    means = [statistics.fmean(group) for group in per_round]
    figures = summary(rows)[name]
    assert figures["n"] == len(values)
    assert figures["rounds"] == 3
    assert figures["mean"] == pytest.approx(statistics.fmean(values))
    assert figures["std"] == pytest.approx(statistics.pstdev(values))
    assert (figures["minimum"], figures["maximum"]) == pytest.approx((min(values), max(values)))
    for column, percent in {"median": 50, "p90": 90, "p95": 95, "p99": 99}.items():
        assert figures[column] == pytest.approx(percentile(values, percent))
    assert metrics.round_values(metrics.RunData(table(rows)), name) == pytest.approx(means)
    half = 4.302653 * statistics.stdev(means) / 3**0.5  # t(0.975, 2)
    mean = statistics.fmean(means)
    assert (figures["ci95_low"], figures["ci95_high"]) == pytest.approx((mean - half, mean + half), rel=1e-6)


def test_figures_by_hand():
    rows = [record(), record(request_index=1, sent_s=0.5, error="closed_early: x"), record(request_index=2, **REFUSED)]
    means = {name: row["mean"] for name, row in summary(rows).items()}
    assert means == pytest.approx(
        {
            "duration_s": 0.9,
            "requests_per_s": 1 / 0.9,
            "output_tokens_per_s": 3 / 0.9,
            "total_tokens_per_s": 13 / 0.9,
            "success_rate": 1 / 3,
            "ttft_ms": 200,
            "tpot_ms": 75,
            "itl_ms": 75,
            "e2el_ms": 350,
        }
    )


def test_total_tokens_per_s_is_tokens_over_duration_in_every_round():
    rows = random_run(9)
    records = table(rows)
    durations = metrics.round_values(metrics.RunData(records), "duration_s")
    rates = metrics.round_values(metrics.RunData(records), "total_tokens_per_s")
    for number, (rate, seconds) in enumerate(zip(rates, durations, strict=True)):
        good = [row for row in successes(rows) if row["round"] == number]
        assert rate * seconds == pytest.approx(sum(row["input_tokens"] + row["output_tokens"] for row in good))


@pytest.mark.parametrize("failure", [{"error": "closed_early: x"}, REFUSED])
def test_nothing_succeeded(failure):
    rows = [record(request_index=index, **failure) for index in range(3)]
    figures = summary(rows)
    assert figures["success_rate"]["mean"] == 0
    assert figures["total_tokens_per_s"]["mean"] == 0
    assert figures["ttft_ms"]["n"] == 0
    assert figures["ttft_ms"]["mean"] is None
    assert metrics.round_values(metrics.RunData(table(rows)), "ttft_ms") == []


def test_one_output_token_has_no_tpot_and_one_round_no_interval():
    figures = summary([record(output_tokens=1, last_token_s=1.2, chunk_gaps_ms=[])])
    assert figures["tpot_ms"]["n"] == 0
    assert figures["itl_ms"]["n"] == 0
    assert figures["ttft_ms"]["n"] == 1
    assert figures["ttft_ms"]["ci95_low"] is None


def test_a_success_without_an_event_has_no_latency_but_its_tokens_count():
    figures = summary([record(first_token_s=None, last_token_s=None, chunk_gaps_ms=[]), record(request_index=1)])
    assert figures["e2el_ms"]["n"] == 1
    assert figures["requests_per_s"]["mean"] == pytest.approx(2 / 0.4)


def test_no_records():
    assert {row["n"] for row in metrics.summarise(metrics.RunData(table([])))} == {0}


def test_rows_fit_the_schema():
    rows = [
        row | {"study": "s", "run_id": "r", "workload": "w"}
        for row in metrics.summarise(metrics.RunData(table(random_run(1))))
    ]
    assert {frozenset(row) for row in rows} == {frozenset(schemas.METRICS.names)}
    assert pa.Table.from_pylist(rows, schema=schemas.METRICS).num_rows == len(METRICS.names())


@pytest.mark.parametrize("name", METRICS.names())
def test_docs_describe_every_metric(name):
    text = metrics.render_docs()
    assert f"## `{name}`" in text
    assert METRICS.get(name).formula in text
    assert metrics.higher_is_better(name) == name.endswith(("per_s", "rate"))
    assert METRICS.get(name).is_rate == name.endswith("per_s")


def test_unknown_metric():
    with pytest.raises(ConfigError, match="did you mean `ttft_ms`"):
        metrics.round_values(metrics.RunData(table([record()])), "tfft_ms")
