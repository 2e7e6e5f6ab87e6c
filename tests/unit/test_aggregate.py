"""Percentages: per deployment as run, per accelerator, and per node, where part of a node counts several times."""

import math

import pandas as pd
import pytest
from made_study import stage_rows

from servelab.results.compare_with_baseline import improvements
from servelab.study.study import CONFIRM, CONFIRM_FIRST


def summaries(rounds, definitions=None):
    """The columns of schemas.METRICS that are read here, for the runs of these rounds; `definitions` are by side."""
    metrics = rounds[["run_id", "metric"]].drop_duplicates()
    of_side = [next((of for side, of in (definitions or {}).items() if side in run), None) for run in metrics["run_id"]]
    return metrics.assign(definition=of_side)


def frame(candidates, definitions=None, **kwargs):
    table, rounds = stage_rows(candidates, stage=CONFIRM, **kwargs)
    rows = improvements(table, rounds, summaries(rounds, definitions)).to_pandas()
    return rows.set_index(["candidate", "basis"])


def test_a_stage_is_compared_with_the_baseline_of_its_workload():
    made = [
        stage_rows({"baseline": [100.0, 102.0], "a": [150.0]}, stage="first"),
        stage_rows({"a": [150.0, 154.0], "b": [160.0]}, stage="second"),
        stage_rows({"baseline": [80.0, 81.0, 79.0]}, stage=CONFIRM_FIRST),
        stage_rows({"baseline": [80.0, 81.0, 79.0]}, stage=CONFIRM),
    ]
    table, rounds = (pd.concat(frames, ignore_index=True) for frames in zip(*made, strict=True))
    both = improvements(table, rounds, summaries(rounds)).to_pandas()
    deployment = both[both["basis"] == "deployment"].set_index(["stage", "candidate"])
    # the baseline as the search measured it: of the same starts, not of the proof's
    assert deployment["change_percent"].to_dict() == {
        ("first", "a"): pytest.approx(100 * (150 / 101 - 1)),
        ("second", "a"): pytest.approx(100 * (152 / 101 - 1)),
        ("second", "b"): pytest.approx(100 * (160 / 101 - 1)),
    }
    assert set(both["evidence"]) == {"search"} and list(deployment["starts"]) == [1, 2, 1]
    assert both[["change_ci95_low_percent", "change_ci95_high_percent"]].isna().all(axis=None)


def test_a_proof_compares_pairs():
    drift = [1.0, 0.7, 2.1, 0.4]
    rows = frame({"baseline": [100 * d for d in drift], "winner": [103 * d for d in drift]})
    gain = rows.loc[("winner", "deployment")]
    change = gain[["change_percent", "change_ci95_low_percent", "change_ci95_high_percent"]]
    assert list(change) == pytest.approx([3.0, 3.0, 3.0])  # what both of a pair share cancels
    assert (gain["evidence"], gain["starts"]) == ("proof", 4)
    assert gain["baseline_value"] == pytest.approx(105) and gain["value"] == pytest.approx(1.03 * 105)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("start_jobs", ["job-0", "job-1", "job-2", "another"]),
        ("start_jobs", ["job-0", "job-1", "job-2", None]),
        ("start_labels", ["proof-0", "proof-1", "proof-2", "proof-9"]),
        ("start_delays_percent", [0.0, 0.0, 0.0, math.nan]),
        ("start_delays_percent", [0.0, 0.0, 0.0, 20.0]),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_a_start_without_its_pair_does_not_count(column, value, side):
    table, rounds = stage_rows({"baseline": [100.0, 101.0, 99.0, 50.0], "winner": [110.0] * 4}, stage=CONFIRM)
    table.at[side, column] = value
    (gain,) = improvements(table, rounds, summaries(rounds)).to_pandas().query("basis == 'deployment'").itertuples()
    assert gain.starts == 3 and gain.baseline_value == pytest.approx(100)
    assert gain.change_percent == pytest.approx(100 * ((1.1 * 110 / 101 * 110 / 99) ** (1 / 3) - 1))


@pytest.mark.parametrize(
    ("delays", "low", "high"), [((30, 30), 1, 1), ((30, 34), 1, (70 / 66) ** 2), ((30, 26), (70 / 74) ** 2, 1)]
)
def test_a_pair_counts_whose_starts_waited_alike(delays, low, high):
    """A start that waited 1 % longer may be 2 % slower: the interval is wider on that side."""
    ends = []
    for of_sides in ((0, 0), delays):
        table, rounds = stage_rows({"baseline": [100.0, 101.0, 99.0], "winner": [110.0] * 3}, stage=CONFIRM)
        for side, delay in enumerate(of_sides):
            table.at[side, "start_delays_percent"] = [float(delay)] * 3
        found = improvements(table, rounds, summaries(rounds)).to_pandas().query("basis == 'deployment'").iloc[0]
        assert found["starts"] == 3
        ends.append([1 + found[f"change_ci95_{end}_percent"] / 100 for end in ("low", "high")])
    assert ends[1] == pytest.approx([ends[0][0] * low, ends[0][1] * high])


WINNER = f"{CONFIRM}-winner-cpu-sharegpt"
BASELINE = f"{CONFIRM}-baseline-cpu-sharegpt"
MEASURED = {"baseline": [100.0, 101.0, 99.0], "winner": [150.0, 151.0, 149.0]}


@pytest.mark.parametrize(
    ("definitions", "compared"),
    [
        ({}, True),
        ({"baseline": "counts words", "winner": "counts words"}, True),
        ({"winner": "counts words"}, False),
        ({"baseline": "counts words"}, False),
        ({"baseline": "counts words", "winner": "counts letters"}, False),
    ],
)
def test_runs_whose_clients_define_a_metric_differently_are_not_compared(definitions, compared):
    assert frame(MEASURED, definitions).empty != compared


def test_a_metric_is_compared_where_it_has_a_better_direction_and_a_value_on_both_sides():
    table, rounds = stage_rows(MEASURED, stage=CONFIRM)
    rows = [
        {"run_id": run, "start": "proof-0", "metric": metric, "round": 0, "value": value}
        for metric, pair in {
            "duration_s": (20.0, 10.0),  # says how long a round was, not how good
            "concurrency": (8.0, 16.0),
            "ttft_ms": (80.0, 40.0),
            "goodput_per_s": (None, 3.0),
            "input_tokens_per_s": (0.0, 3.0),
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
