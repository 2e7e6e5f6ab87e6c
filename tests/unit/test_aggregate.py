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


def frame(candidates, **kwargs):
    table, rounds = stage_rows(candidates, stage=COMPARISON, **kwargs)
    return improvements(table, rounds).to_pandas().set_index(["candidate", "basis"])


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
    both = improvements(pd.concat([table, stage_table]), pd.concat([rounds, stage_rounds])).to_pandas()
    gain = both.set_index(["stage", "candidate", "basis"]).loc[("first", "a", "deployment")]
    assert gain["change_percent"] == pytest.approx(50)
    assert gain["change_ci95_low_percent"] < 50 < gain["change_ci95_high_percent"]
