"""Every figure follows from the records: recomputed here in plain Python, apart from the code under test."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from made_records import REFUSED, random_run, record, stream, summary, table

from servelab.core.errors import ConfigError
from servelab.metrics import definitions as metrics
from servelab.metrics.definitions import RunData
from servelab.metrics.tables import io
from servelab.metrics.timeline import in_flight, output_token_events

SLOS = {"ttft_ms": 1200.0, "tpot_ms": 60.0, "e2el_ms": 2500.0}
PRICE = 2.5


# Each metric's observations of a round, from its rows, by the formulas of docs/reference/metrics.md.
def successes(rows):
    return [row for row in rows if row["error"] is None]


def sent(rows):
    return [row for row in rows if row["sent_s"] is not None]


def duration(rows):
    return max(row["end_s"] for row in rows) - min(row["sent_s"] for row in sent(rows))


def output_tokens(rows):
    return sum(row["output_tokens"] for row in rows)


def input_tokens(rows):
    return sum(row["input_tokens"] for row in rows)


def ttft(row):
    return 1000 * (row["first_token_s"] - row["sent_s"])


def e2el(row):
    return 1000 * (row["last_token_s"] - row["sent_s"])


def tpot(row):
    return 1000 * (row["last_token_s"] - row["first_token_s"]) / (row["output_tokens"] - 1)


def several(rows):
    return [row for row in successes(rows) if row["output_tokens"] > 1]


def is_good(row):
    within = row["output_tokens"] == 1 or tpot(row) <= SLOS["tpot_ms"]
    return within and ttft(row) <= SLOS["ttft_ms"] and e2el(row) <= SLOS["e2el_ms"]


def token_events(rows):
    for row in successes(rows):
        gaps = [gap / 1000 for gap in row["chunk_gaps_ms"]]
        for since_first in itertools.accumulate(gaps, initial=0.0):
            moment = min(row["first_token_s"] + since_first, row["last_token_s"])
            yield moment, row["output_tokens"] / row["chunks"]


def peak_output(rows):
    start, buckets = min(row["sent_s"] for row in sent(rows)), max(1, int(duration(rows)))
    length = duration(rows) / buckets
    found = [0.0] * buckets
    for moment, tokens in token_events(rows):
        found[min(buckets - 1, int((moment - start) / length))] += tokens / length
    return max(found)


def in_flight_at(rows, moment):
    return sum(row["sent_s"] <= moment < row["end_s"] for row in sent(rows))


def peak_concurrency(rows):
    return max(in_flight_at(rows, row["sent_s"]) for row in sent(rows))


OBSERVATIONS = {
    "duration_s": lambda rows: [duration(rows)],
    "requests_per_s": lambda rows: [len(successes(rows)) / duration(rows)],
    "input_tokens_per_s": lambda rows: [input_tokens(successes(rows)) / duration(rows)],
    "output_tokens_per_s": lambda rows: [output_tokens(successes(rows)) / duration(rows)],
    "total_tokens_per_s": lambda rows: [
        (input_tokens(successes(rows)) + output_tokens(successes(rows))) / duration(rows)
    ],
    "peak_output_tokens_per_s": lambda rows: [peak_output(rows)],
    "success_rate": lambda rows: [len(successes(rows)) / len(rows)],
    "goodput_per_s": lambda rows: [sum(map(is_good, successes(rows))) / duration(rows)],
    "slo_attainment": lambda rows: [sum(map(is_good, successes(rows))) / len(rows)],
    "cost_per_million_tokens": lambda rows: [
        PRICE / 3600 * duration(rows) / (input_tokens(successes(rows)) + output_tokens(successes(rows))) * 1e6
    ],
    "cost_per_million_output_tokens": lambda rows: [
        PRICE / 3600 * duration(rows) / output_tokens(successes(rows)) * 1e6
    ],
    "concurrency": lambda rows: [sum(map(e2el, successes(rows))) / 1000 / duration(rows)],
    "peak_concurrency": lambda rows: [peak_concurrency(rows)],
    "request_rate_asked_per_s": lambda rows: [
        (len(rows) - 1) / (max(row["scheduled_s"] for row in rows) - min(row["scheduled_s"] for row in rows))
    ],
    "request_rate_sent_per_s": lambda rows: [
        (len(sent(rows)) - 1) / (max(row["sent_s"] for row in sent(rows)) - min(row["sent_s"] for row in sent(rows)))
    ],
    "schedule_delay_ms": lambda rows: [
        1000 * (row["started_s"] - row["scheduled_s"]) for row in rows if row["started_s"] is not None
    ],
    "ttft_ms": lambda rows: [ttft(row) for row in successes(rows)],
    "e2el_ms": lambda rows: [e2el(row) for row in successes(rows)],
    "normalized_e2el_ms": lambda rows: [e2el(row) / row["output_tokens"] for row in successes(rows)],
    "tpot_ms": lambda rows: [tpot(row) for row in several(rows)],
    "itl_ms": lambda rows: [gap for row in successes(rows) for gap in row["chunk_gaps_ms"]],
    "itl_token_ms": lambda rows: [tpot(row) for row in several(rows) for _ in range(row["output_tokens"] - 1)],
}


def percentile(values, percent):
    """Linear interpolation between closest ranks."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def by_round(rows):
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row["round"])]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_requests_recompute_every_figure(name, seed):
    rows = random_run(seed)
    per_round = [OBSERVATIONS[name](group) for group in by_round(rows)]
    values = [value for group in per_round for value in group]
    means = [statistics.fmean(group) for group in per_round if group]
    figures = summary(rows, SLOS, PRICE)[name]
    assert figures["n"] == len(values)
    assert figures["rounds"] == len(means) == 3
    assert figures["std"] == pytest.approx(statistics.pstdev(values))
    assert (figures["minimum"], figures["maximum"]) == pytest.approx((min(values), max(values)))
    for column, percent in {"median": 50, "p90": 90, "p95": 95, "p99": 99}.items():
        assert figures[column] == pytest.approx(percentile(values, percent))
    assert metrics.round_values(RunData(table(rows), SLOS, price_per_hour=PRICE), name) == pytest.approx(means)
    assert not {"ci95_low", "ci95_high"} & figures.keys()  # the rounds of one server start give no interval
    assert figures["mean"] == pytest.approx(statistics.fmean(means))  # each round counts alike, whatever its size


def test_figures_by_hand():
    rows = [record(), record(request_index=1, sent_s=0.5, error="closed_early: x"), record(request_index=2, **REFUSED)]
    found = summary(rows, {"ttft_ms": 200.1})
    means = {name: found[name]["mean"] for name in OBSERVATIONS if found[name]["n"]}
    assert means == pytest.approx(
        {
            "duration_s": 0.9,
            "requests_per_s": 1 / 0.9,
            "input_tokens_per_s": 10 / 0.9,
            "output_tokens_per_s": 3 / 0.9,
            "total_tokens_per_s": 13 / 0.9,
            "peak_output_tokens_per_s": 3 / 0.9,
            "success_rate": 1 / 3,
            "goodput_per_s": 1 / 0.9,
            "slo_attainment": 1 / 3,
            "concurrency": 0.35 / 0.9,
            "peak_concurrency": 2,
            "ttft_ms": 200,
            "tpot_ms": 75,
            "itl_ms": 75,
            "itl_token_ms": 75,
            "e2el_ms": 350,
            "normalized_e2el_ms": 350 / 3,
        }
    )


OPEN_LOOP_ONLY = ("request_rate_asked_per_s", "request_rate_sent_per_s", "schedule_delay_ms")


@pytest.mark.parametrize(
    ("scheduled", "is_open"),
    [
        ([0.0] * 8, False),
        ([0.0, 0.5, 1.0] + [1.0] * 5, False),  # a ramp-up, and then all that is left at once
        ([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], True),
        ([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0], True),  # a trace in whole seconds
        ([0.0], False),
    ],
)
def test_an_asked_rate_and_a_delay_are_of_open_loops(scheduled, is_open):
    rows = [stream(at + 0.25 * at, 1.0, 4, scheduled_s=at) for at in scheduled]
    figures = summary(rows)
    assert {figures[name]["n"] > 0 for name in OPEN_LOOP_ONLY} == {is_open}
    if is_open:
        span = scheduled[-1]
        assert figures["request_rate_asked_per_s"]["mean"] == pytest.approx(7 / span)
        assert figures["request_rate_sent_per_s"]["mean"] == pytest.approx(7 / (1.25 * span))
        assert figures["schedule_delay_ms"]["maximum"] == pytest.approx(250 * span)


def test_requests_of_the_settle_phase_are_in_no_figure():
    rows = random_run(3)
    settle = [record(phase="settle", round=number, sent_s=0.0, end_s=99.0) for number in range(3)]
    only_settled = [record(phase="settle", round=3)]
    assert summary(settle + rows + only_settled, SLOS) == summary(rows, SLOS)


def test_a_client_that_defines_a_metric_otherwise_is_marked():
    said = metrics.summarise(RunData(table([record()])), {"ttft_ms": "the role counts", "itl_ms": "none kept"})
    definition = {row["metric"]: row["definition"] for row in said}
    roles = {name for name, text in definition.items() if text == "the role counts"}
    assert roles >= {"ttft_ms", "goodput_per_s", "slo_attainment"}
    gaps = {name for name, text in definition.items() if text == "none kept"}
    assert gaps >= {"itl_ms", "peak_output_tokens_per_s"}
    assert not roles & gaps and not (roles | gaps) & {"duration_s", "tpot_ms", "total_tokens_per_s", "e2el_ms"}
    assert definition["duration_s"] is None
    with pytest.raises(ConfigError, match="did you mean `ttft_ms`"):
        metrics.summarise(RunData(table([record()])), {"tfft_ms": "?"})


@pytest.mark.parametrize("seed", range(5))
def test_tokens_and_requests_in_flight_add_up_to_the_records(seed):
    rows = io.record_array(table([*random_run(seed), stream(0.2, 3.0, 7, phase="settle")]))
    for requests in io.by_round(rows).values():
        good = io.succeeded(requests)
        assert output_token_events(good).tokens.sum() == pytest.approx(np.nansum(good["output_tokens"]))
        steps = in_flight(requests["sent_s"], requests["end_s"])
        busy = (steps.counts[:-1] * np.diff(steps.times_s)).sum()
        assert busy == pytest.approx(np.nansum(requests["end_s"] - requests["sent_s"]))
