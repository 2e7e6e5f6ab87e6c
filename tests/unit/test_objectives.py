"""Objectives and constraints: what a cost is, that its price is no part of a run, and what a miss says."""

import re

import pytest
from made_records import record, table
from scipy.stats import binomtest

from servelab.core.errors import ConfigError
from servelab.metrics import definitions as metrics
from servelab.metrics.objective import (
    Beyond,
    count_beyond,
    highest_share,
    lowest_share,
    missed_constraints,
)
from servelab.search.planning import plan_stage
from servelab.study.configuration import baseline


def means(rows, **data):
    found = metrics.summarise(metrics.RunData(table(rows), **data))
    return {row["metric"]: row["mean"] for row in found}


def test_a_cost_is_the_price_of_the_time_by_tokens():
    """0.4 s at 3.60 an hour are 0.0004, for 13 tokens, of which 3 are output."""
    found = means([record()], price_per_hour=3.6)
    assert found["cost_per_million_tokens"] == pytest.approx(0.0004 / 13 * 1e6)
    assert found["cost_per_million_output_tokens"] == pytest.approx(0.0004 / 3 * 1e6)


def test_there_is_no_cost_without_a_price_or_a_token():
    assert means([record()])["cost_per_million_tokens"] is None
    failed = record(error="http_500", output_tokens=None, input_tokens=None)
    assert means([failed], price_per_hour=3.6)["cost_per_million_tokens"] is None


def test_a_price_is_no_part_of_a_run_and_a_cost_shares_the_runs_of_its_rate(study_content, make_project):
    def runs(metric, price):
        study_content["objective"]["metric"] = metric
        study_content["hardware"]["price_per_accelerator_hour"] = price
        project = make_project(study_content)
        return plan_stage(project, "sequences", baseline(project.study)).run_ids()

    of_tokens = runs("total_tokens_per_s", None)
    assert runs("cost_per_million_tokens", 2.0) == runs("cost_per_million_tokens", 3.0) == of_tokens
    assert runs("cost_per_million_output_tokens", 2.0) == runs("output_tokens_per_s", None) != of_tokens


BY_METRIC = {
    "tpot_ms": {"mean": 61.2, "p99": 80.0, "maximum": 90.0, "ci95_low": 58.0, "ci95_high": 64.4},
    "success_rate": {"mean": 0.99, "ci95_low": None, "ci95_high": None},
    "ttft_ms": {"mean": 400.0, "p99": None},
}


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        ({}, None),
        ({"tpot_ms": {"mean": 61.2, "maximum": 90}}, None),
        (
            {"tpot_ms": {"mean": 50}},
            "tpot_ms mean must be at most 50 and is 61.2, 22.4 % above it (95 % interval 58 to 64.4)",
        ),
        ({"success_rate": {"mean": 1}}, "success_rate mean must be at least 1 and is 0.99, 1.0 % below it"),
        (
            {"tpot_ms": {"maximum": 89}, "success_rate": {"mean": 0.995}},
            "tpot_ms maximum must be at most 89 and is 90, 1.1 % above it; "
            "success_rate mean must be at least 0.995 and is 0.99, 0.5 % below it",
        ),
    ],
)
def test_a_miss_says_by_how_much(constraints, said):
    assert missed_constraints(constraints, BY_METRIC, {}) == said


@pytest.mark.parametrize(
    ("observations", "beyond", "said"),
    [
        (299, 0, None),
        (
            298,
            0,
            "this cannot be shown with so few requests: 0 of 298 are above it, so up to 1 % may be (95 % confidence); "
            "with as many above it, 299 are needed",
        ),
        (473, 1, None),
        (
            472,
            1,
            "this cannot be shown with so few requests: 1 of 472 are above it, so up to 1 % may be (95 % confidence); "
            "with as many above it, 473 are needed",
        ),
        (
            300,
            6,
            "this cannot be shown with so few requests: 6 of 300 are above it, so up to 3.91 % may be (95 % "
            "confidence); with as many above it, 1,182 are needed",
        ),
        (300, 7, "clear"),
        (48, 3, "clear"),
    ],
)
def test_a_percentile_keeps_its_limit_only_with_95_percent_confidence(observations, beyond, said):
    found = {("tpot_ms", "p99"): Beyond(observations, beyond)}
    text = missed_constraints({"tpot_ms": {"p99": 60}}, BY_METRIC, found)
    clear = "tpot_ms p99 must be at most 60 and is 80, 33.3 % above it"
    assert text == {None: None, "clear": clear}.get(said, f"tpot_ms p99 must be at most 60 and is 80; {said}")


@pytest.mark.parametrize(
    ("observations", "beyond"), [(1, 0), (5, 5), (48, 0), (299, 0), (3000, 30), (100_000, 990), (7, 3)]
)
def test_the_bounds_are_those_of_clopper_and_pearson(observations, beyond):
    found = Beyond(observations, beyond)
    interval = binomtest(beyond, observations).proportion_ci(0.90, method="exact")  # both sides have 5 %
    assert highest_share(found) == pytest.approx(interval.high, abs=1e-9)
    assert lowest_share(found) == pytest.approx(interval.low, abs=1e-9)


def test_counts_are_of_observations_and_never_of_more_than_the_requests():
    """Of three requests one has a TTFT of 300 ms, the others 200; each has two gaps, of 50 and 100 ms."""
    rows = [record(), record(request_index=1), record(request_index=2, first_token_s=1.3)]
    limits = {"ttft_ms": {"p99": 250, "mean": 1}, "itl_ms": {"p90": 75}, "requests_per_s": {"median": 1e9}}
    assert count_beyond(metrics.RunData(table(rows)), limits) == [
        {"metric": "ttft_ms", "statistic": "p99", "observations": 3, "beyond": 1},
        {"metric": "itl_ms", "statistic": "p90", "observations": 3, "beyond": 2},  # 3 of 6 gaps: 1.5 of 3 requests
        {"metric": "requests_per_s", "statistic": "median", "observations": 1, "beyond": 1},
    ]


@pytest.mark.parametrize(
    ("constraints", "changes", "message"),
    [
        (
            {"ttft_ms": {"p99": 2000}},
            {},
            "ttft_ms.p99: cannot be shown with fewer than 299 requests, and 12 requests of "
            "cpu-sharegpt × 3 rounds are 36; use a workload of 100 requests, more `protocol.rounds`, or limit `mean`",
        ),
        ({"itl_ms": {"p95": 100}}, {}, "itl_ms.p95: cannot be shown with fewer than 59 requests, and 12 requests of"),
        (
            {"ttft_ms": {"p90": 1}},
            {"settle_requests": 3},
            "p90: cannot be shown with fewer than 29 requests, and 9 req",
        ),
        ({"ttft_ms": {"p90": 1}}, {"duration_s": 4.6, "request_rate": 2}, "and 9 requests of cpu-sharegpt × 3 rounds"),
        ({"ttft_ms": {"median": 1}}, {"rounds": 1, "duration_s": 2, "request_rate": 2}, "and 4 requests of"),
        ({"requests_per_s": {"p99": 1}}, {}, None),
        (
            {"cost_per_million_tokens": {"median": 1}},
            {},
            "cannot be shown with fewer than 5 rounds: it has one value per "
            "round, and `protocol.rounds` is 3; raise it, or limit `mean`",
        ),
        ({"ttft_ms": {"p90": 1, "mean": 2, "maximum": 3}}, {}, None),
        ({"ttft_ms": {"p90": 1}}, {"settle_requests": 2}, None),
        ({"ttft_ms": {"p99": 1}}, {"rounds": 25}, None),
    ],
)
def test_fewer_requests_than_a_percentile_needs_are_one_clear_error(
    study_content, make_project, constraints, changes, message
):
    study_content["objective"]["constraints"] = constraints
    study_content["protocol"] |= changes
    study_content["hardware"]["price_per_accelerator_hour"] = 1.0
    if message is None:
        make_project(study_content)
        return
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        make_project(study_content)
    assert str(raised.value).count("\n") == 0 and "cpu-smollm2.yaml: objective.constraints." in str(raised.value)
