"""Guard workloads: a winner that loses on one is shown as such, and what is better there is named."""

import numpy as np
import pandas as pd
import pytest
from made_study import stage_rows

from servelab.guards import CHANGE, best_by_workload, guard
from servelab.statistics import ratio_ci95
from servelab.study import COMPARISON

TITLES = {name: name.title() for name in ("cpu-sharegpt", "cpu-short", "cpu-long", "cpu-generation")}


def tables(rounds_by_stage):
    """Tables and rounds of all stages from {stage: {workload: {candidate: rounds}}}."""
    made = [
        stage_rows(rounds, stage=stage, workload=workload)
        for stage, workloads in rounds_by_stage.items()
        for workload, rounds in workloads.items()
    ]
    return [pd.concat(frames, ignore_index=True) for frames in zip(*made, strict=True)]


def compared(baseline, winner):
    """The comparison on one guard workload."""
    return {COMPARISON: {"cpu-short": {"baseline": baseline, "winner": winner}}}


def guarded(study, rounds_by_stage):
    """Word and reason of the guard on cpu-short."""
    table, _ = tables(rounds_by_stage)
    sides = rounds_by_stage[COMPARISON]["cpu-short"]
    failed = any(isinstance(values, str) for values in sides.values())
    change = (None, None, None) if failed else ratio_ci95(sides["baseline"], sides["winner"])
    return guard(study, table, "cpu-short", dict(zip(CHANGE, change, strict=True)))


STEADY = [100, 101, 99]


@pytest.mark.parametrize(
    ("winner", "word"),
    [
        ([120, 121, 119], "holds"),
        ([98, 99, 97], "holds"),  # a loss, but not of 5 %
        ([80, 81, 79], "loses"),
        ([97, 90, 104], "unclear"),
        ([60, 130, 90], "unclear"),  # a loss of 6 % within noise
        ("out_of_memory", "loses"),
    ],
)
def test_a_loss_is_told_where_it_is_one(study, winner, word):
    assert guarded(study, compared(STEADY, winner))[0] == word


def test_a_baseline_that_failed_guards_nothing(study):
    word, why = guarded(study, compared("crashed", STEADY))
    assert word == "unclear" and why == "the baseline: crashed: the telling line"


def test_a_single_round_speaks_for_itself(study):
    assert guarded(study, compared([100], [94]))[0] == "loses"
    assert guarded(study, compared([100], [96]))[0] == "holds"


def test_more_of_a_latency_is_a_loss(study):
    objective = study.objective.model_copy(update={"metric": "ttft_ms"})
    study = study.model_copy(update={"objective": objective})
    assert guarded(study, compared(STEADY, [120, 121, 119]))[0] == "loses"
    assert guarded(study, compared(STEADY, [80, 81, 79]))[0] == "holds"


def test_two_that_are_equal_seldom_lose(study):
    """1,000 comparisons of equal sides, 3 rounds each, 4 % noise: a loss beyond noise comes in at most 2.5 %."""
    draw = np.random.default_rng(5)
    words = [
        guarded(study, compared(list(draw.normal(100, 4, 3)), list(draw.normal(100, 4, 3))))[0] for _ in range(1000)
    ]
    assert words.count("loses") <= 25 + 15  # three standard deviations above the 25 that are expected


def test_each_workload_has_its_own_best(study):
    found = best_by_workload(
        study,
        *tables(
            {
                COMPARISON: {
                    "cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]},
                    "cpu-short": {"baseline": STEADY, "winner": [80, 81, 79]},
                    "cpu-long": {"baseline": STEADY, "winner": "out_of_memory"},
                    "cpu-generation": {"baseline": STEADY, "winner": [101, 100, 102]},
                }
            }
        ),
        TITLES,
    )
    assert {each["workload"]: (each["candidate"], each["is_winner"]) for each in found} == {
        "cpu-sharegpt": ("winner", True),
        "cpu-short": ("baseline", False),
        "cpu-long": ("baseline", False),
        "cpu-generation": ("winner", True),
    }
    short = found[1]
    assert short["command"] == "serve baseline" and short["change_percent"] == pytest.approx(25)
    assert short["why"].startswith("+25.0 % (95 % interval") and short["why"].endswith("against the winner")
    assert found[2]["why"] == "the winner has no valid run here" and found[2]["change_percent"] is None


def test_a_candidate_of_a_stage_is_best_where_it_was_measured_and_not_where_the_search_decided(study):
    rounds = {"baseline": STEADY, "winner": [150, 151, 149]}
    found = best_by_workload(
        study,
        *tables(
            {
                "attention": {"cpu-sharegpt": {"a": [200, 201, 199]}, "cpu-short": {"a": [200, 201, 199]}},
                COMPARISON: {"cpu-sharegpt": rounds, "cpu-short": rounds},
            }
        ),
        TITLES,
    )
    assert [each["candidate"] for each in found] == ["winner", "attention/a"]


def test_a_difference_in_the_noise_keeps_the_winner(study):
    rounds = {"baseline": [100, 140, 120], "winner": [95, 135, 115]}
    found = best_by_workload(study, *tables({COMPARISON: {"cpu-short": rounds}}), TITLES)
    assert found[0]["is_winner"] and found[0]["why"].startswith("no other")


def test_a_workload_nothing_ran_on_is_left_out(study):
    made = tables({COMPARISON: {"cpu-short": {"baseline": "crashed", "winner": "crashed"}}})
    assert best_by_workload(study, *made, TITLES) == []


def test_where_the_baseline_won_it_is_the_winner_of_each_workload(study):
    made = tables({COMPARISON: {"cpu-sharegpt": {"baseline": STEADY}, "cpu-short": {"baseline": STEADY}}})
    found = best_by_workload(study, *made, TITLES)
    assert [(each["candidate"], each["is_winner"]) for each in found] == [("baseline", True)] * 2
