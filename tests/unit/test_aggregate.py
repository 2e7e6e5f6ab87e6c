"""Percentages: per deployment as run, per accelerator, and per node, where part of a node counts several times."""

import pandas as pd
import pytest
from made_study import stage_rows

from servelab.aggregate import improvements
from servelab.objective import per_basis
from servelab.study import COMPARISON


@pytest.mark.parametrize(
    ("basis", "accelerators", "expected"),
    [
        ("deployment", 4, (1.0, False)),
        ("accelerator", 4, (0.25, False)),
        ("node", 8, (1.0, False)),
        ("node", 4, (2.0, True)),
        ("node", 3, (2.0, True)),  # two of three fit on eight; two accelerators stay idle
    ],
)
def test_factor_of_a_basis(basis, accelerators, expected):
    assert per_basis(basis, accelerators, 8) == expected


def summaries(rounds, definitions=None):
    """The columns of schemas.METRICS that are read here, for the runs of these rounds."""
    metrics = rounds[["run_id", "metric"]].drop_duplicates()
    return metrics.assign(definition=[(definitions or {}).get(run) for run in metrics["run_id"]])


def frame(candidates, definitions=None, **kwargs):
    table, rounds = stage_rows(candidates, stage=COMPARISON, **kwargs)
    rows = improvements(table, rounds, summaries(rounds, definitions)).to_pandas()
    return rows.set_index(["candidate", "basis"])


def test_half_a_node_counts_twice_per_node_and_says_so():
    rows = frame(
        {"baseline": [1000.0, 1010.0, 990.0], "winner": [800.0, 808.0, 792.0]},
        accelerators={"baseline": 8, "winner": 4},
        per_node=8,
    )
    node = rows.loc[("winner", "node")]
    assert (node["value"], node["baseline_value"]) == (pytest.approx(1600), pytest.approx(1000))
    assert node["change_percent"] == pytest.approx(60)
    assert node["extrapolated"] and (node["factor"], node["baseline_factor"]) == (2, 1)
    assert rows.loc[("winner", "accelerator"), "change_percent"] == pytest.approx(60)
    deployment = rows.loc[("winner", "deployment")]
    assert deployment["change_percent"] == pytest.approx(-20)
    assert not deployment["extrapolated"]


def test_the_baseline_is_not_compared_with_itself_nor_with_failures():
    rows = frame({"baseline": [100.0, 101.0], "winner": "crashed"})
    assert rows.empty


def test_a_stage_is_compared_with_the_baseline_of_its_workload():
    table, rounds = stage_rows({"baseline": [100.0, 101.0, 99.0]}, stage=COMPARISON)
    stage_table, stage_rounds = stage_rows(
        {"incumbent": [100.0, 101.0, 99.0], "a": [150.0, 151.0, 149.0]}, stage="first"
    )
    rounds = pd.concat([rounds, stage_rounds])
    both = improvements(pd.concat([table, stage_table]), rounds, summaries(rounds)).to_pandas()
    gain = both.set_index(["stage", "candidate", "basis"]).loc[("first", "a", "deployment")]
    assert gain["change_percent"] == pytest.approx(50)
    assert gain["change_ci95_low_percent"] < 50 < gain["change_ci95_high_percent"]


WINNER = f"{COMPARISON}-winner-cpu-sharegpt"
BASELINE = f"{COMPARISON}-baseline-cpu-sharegpt"
MEASURED = {"baseline": [100.0, 101.0, 99.0], "winner": [150.0, 151.0, 149.0]}


@pytest.mark.parametrize(
    ("definitions", "compared"),
    [
        ({}, True),
        ({BASELINE: "counts words", WINNER: "counts words"}, True),
        ({WINNER: "counts words"}, False),
        ({BASELINE: "counts words"}, False),
        ({BASELINE: "counts words", WINNER: "counts letters"}, False),
    ],
)
def test_runs_whose_clients_define_a_metric_differently_are_not_compared(definitions, compared):
    assert frame(MEASURED, definitions).empty != compared


def test_a_metric_is_compared_where_it_has_a_better_direction_and_a_value_on_both_sides():
    table, rounds = stage_rows(MEASURED, stage=COMPARISON)
    rows = [
        {"run_id": run, "metric": metric, "round": 0, "value": value}
        for metric, pair in {
            "duration_s": (20.0, 10.0),  # says how long a round was, not how good
            "concurrency": (8.0, 16.0),
            "ttft_ms": (80.0, 40.0),
            "goodput_per_s": (None, 3.0),
            "steady_requests_per_s": (0.0, 3.0),
        }.items()
        for run, value in zip((BASELINE, WINNER), pair, strict=True)
        if value is not None
    ]
    rounds = pd.concat([rounds, pd.DataFrame(rows)])
    found = improvements(table, rounds, summaries(rounds)).to_pandas()
    assert set(found["metric"]) == {"total_tokens_per_s", "ttft_ms"}
    better = found.drop_duplicates("metric").set_index("metric")["higher_is_better"]
    assert better["total_tokens_per_s"] and not better["ttft_ms"]
    ttft = found[found["metric"] == "ttft_ms"]
    assert list(ttft["basis"]) == ["deployment"]  # a latency does not add up over deployments
    assert ttft["change_percent"].item() == pytest.approx(-50)


def test_validity_of_both_runs_is_beside_the_figure():
    rounds = {"baseline": [100.0, 101.0, 99.0], "winner": [150.0, 151.0, 149.0]}
    rows = frame(rounds, validity={"baseline": "suspect", "winner": "invalid"})
    assert set(rows["baseline_validity"]) == {"suspect"} and set(rows["validity"]) == {"invalid"}
