"""Objectives and constraints: what a cost is, that its price is no part of a run, and what a miss says."""

import json

import pytest
from made_records import record, table

from servelab import metrics
from servelab.objective import missed_constraints
from servelab.parse import parse_plan
from servelab.plan import baseline, plan_stage
from servelab.statistics import mean_ci95, pooled_relative_half_widths


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


def test_slo_attainment_is_the_share_of_all_requests():
    rows = [record(), record(request_index=1, first_token_s=1.3), record(request_index=2, error="http_500")]
    assert means(rows, slos={"ttft_ms": 250})["slo_attainment"] == pytest.approx(1 / 3)
    assert means(rows)["slo_attainment"] is None


def test_a_price_is_no_part_of_a_run_and_a_cost_shares_the_runs_of_its_rate(study_content, make_project):
    def runs(metric, price):
        study_content["objective"]["metric"] = metric
        study_content["hardware"]["price_per_accelerator_hour"] = price
        project = make_project(study_content)
        return plan_stage(project, "sequences", baseline(project)).run_ids()

    of_tokens = runs("total_tokens_per_s", None)
    assert runs("cost_per_million_tokens", 2.0) == runs("cost_per_million_tokens", 3.0) == of_tokens
    assert runs("cost_per_million_output_tokens", 2.0) == runs("output_tokens_per_s", None) != of_tokens


def test_constraints_are_no_part_of_a_run(study_content, make_project):
    def runs(**constraints):
        study_content["objective"]["constraints"] = constraints
        project = make_project(study_content)
        return plan_stage(project, "sequences", baseline(project)).run_ids()

    assert runs() == runs(tpot_ms={"mean": 50}) == runs(ttft_ms={"p99": 2000, "mean": 500})


BY_METRIC = {
    "tpot_ms": {"mean": 61.2, "p99": 80.0},
    "success_rate": {"mean": 0.99},
    "ttft_ms": {"mean": 400.0, "p99": None},
}


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        ({}, None),
        ({"tpot_ms": {"mean": 61.2, "p99": 100}}, None),
        ({"tpot_ms": {"mean": 50}}, "tpot_ms mean must be at most 50 and is 61.2, 22.4 % above it"),
        ({"success_rate": {"mean": 1}}, "success_rate mean must be at least 1 and is 0.99, 1.0 % below it"),
        ({"ttft_ms": {"p99": 2000}}, "ttft_ms p99 must be at most 2000 and could not be computed"),
        (
            {"tpot_ms": {"mean": 50, "p99": 60}},
            "tpot_ms mean must be at most 50 and is 61.2, 22.4 % above it; "
            "tpot_ms p99 must be at most 60 and is 80, 33.3 % above it",
        ),
    ],
)
def test_a_miss_says_by_how_much(constraints, said):
    assert missed_constraints(constraints, BY_METRIC) == said


@pytest.fixture
def parsed(study_content, make_project, tmp_path):
    """The stage table of runs that all sent the same requests."""
    from made_run import spec
    from test_parse import write

    def make(**changes):
        study_content["objective"] |= changes.pop("objective", {})
        study_content["hardware"] |= changes
        project = make_project(study_content)
        plan = plan_stage(project, "sequences", baseline(project))
        for run_id in plan.run_ids():
            write(tmp_path / run_id)
            (tmp_path / run_id / "spec.json").write_text(json.dumps(spec().model_dump(mode="json")))
        left_out = plan.candidates[-1].model_copy(update={"runs": [], "not_run": "over the budget"})
        plan = plan.model_copy(update={"candidates": [*plan.candidates[:-1], left_out]})
        return parse_plan(project.study, plan, tmp_path)["table"].to_pandas()

    return make


def test_the_table_says_what_is_missed_reached_and_left_out(parsed):
    rows = parsed(objective={"constraints": {"ttft_ms": {"mean": 0.001}}, "slos": {"ttft_ms": 1e9}})
    assert set(rows["outcome"][:-1]) == {"ok"}
    assert all("ttft_ms mean must be at most 0.001" in text for text in rows["constraints_missed"][:-1])
    assert list(rows["slo_attainment"][:-1]) == [1.0] * (len(rows) - 1)
    assert tuple(rows.iloc[-1][["outcome", "reason", "message"]]) == ("not run", "budget", "over the budget")


def test_the_table_has_the_cost_of_the_runs_accelerators(parsed):
    dear, cheap = (
        parsed(price_per_accelerator_hour=price, objective={"metric": "cost_per_million_tokens"})
        for price in (4.0, 1.0)
    )
    assert dear["objective_value"][0] == pytest.approx(4 * cheap["objective_value"][0])
    assert dear["constraints_missed"].isna().all()


def test_pooled_noise_is_students_interval_where_all_samples_are_alike():
    sample = [98.0, 101.0, 101.0]
    mean, low, high = mean_ci95(sample)
    assert pooled_relative_half_widths([sample]) == pytest.approx([(high - low) / 2 / mean])


def test_many_small_samples_tell_of_noise_what_one_cannot():
    alone, together = pooled_relative_half_widths([[99.0, 101.0]]), pooled_relative_half_widths([[99.0, 101.0]] * 20)
    assert together[0] < alone[0] / 4
    assert pooled_relative_half_widths([[5.0], [6.0]]) == [float("inf")] * 2
    twice, *_ = pooled_relative_half_widths([[99.0, 101.0, 99.0, 101.0], [99.0, 101.0]])
    assert twice < pooled_relative_half_widths([[99.0, 101.0], [99.0, 101.0, 99.0, 101.0]])[0]
