"""The other workloads: the answer reports where the winner loses, and which side is better there."""

import math

import pandas as pd
import pytest
from made_study import ROOT, stage_rows

from servelab.metrics.statistics import change_of_pairs, ratio_ci95
from servelab.search.recommend import best_by_workload, judge_loss
from servelab.search.recommended import Improvement
from servelab.study.recorded.study import load_recorded
from servelab.study.study import CONFIRM

TITLES = {name: name.title() for name in ("cpu-sharegpt", "cpu-short", "cpu-long", "cpu-generation")}


def proved(baseline, winner):
    return change_of_pairs([math.log(value / base) for base, value in zip(baseline, winner, strict=True)])


def gain_on(workload, baseline, winner, change=proved):
    """The winner against the baseline on a workload, from these values of starts."""
    failed = isinstance(baseline, str) or isinstance(winner, str)
    value, low, high = (None, None, None) if failed else change(baseline, winner)
    return Improvement(
        workload=workload,
        title="",
        metric="total_tokens_per_s",
        basis="deployment",
        baseline_value=None,
        value=None,
        change_percent=value,
        change_ci95_low_percent=low,
        change_ci95_high_percent=high,
        n=3,
    )


def judged(study, baseline, winner, change=proved):
    """Word and reason for the winner on cpu-short."""
    table, _ = stage_rows({"baseline": baseline, "winner": winner}, stage=CONFIRM, workload="cpu-short")
    return judge_loss(study, table, gain_on("cpu-short", baseline, winner, change))


def best(study, starts, recommended="winner"):
    """What to use on each workload, after a proof with these values of starts."""
    made = [stage_rows(sides, stage=CONFIRM, workload=name)[0] for name, sides in starts.items()]
    gains = [gain_on(name, sides["baseline"], sides["winner"]) for name, sides in starts.items() if len(sides) > 1]
    return best_by_workload(study, pd.concat(made, ignore_index=True), gains, recommended, TITLES)


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
def test_a_loss_beyond_the_limit_and_noise_is_reported(study, winner, word):
    assert judged(study, STEADY, winner)[0] == word


def test_a_failed_baseline_leaves_it_unclear(study):
    word, why = judged(study, "crashed", STEADY)
    assert word == "unclear" and why == "the baseline: crashed: the telling line"


def test_a_single_log_is_judged_without_an_interval():
    study = load_recorded(ROOT / "config/recorded/qwen3-32b-h100")
    assert judged(study, [100], [94], ratio_ci95)[0] == "loses"
    assert judged(study, [100], [96], ratio_ci95)[0] == "holds"


def test_more_of_a_latency_is_a_loss(study):
    objective = study.objective.model_copy(update={"metric": "ttft_ms"})
    study = study.model_copy(update={"objective": objective})
    assert judged(study, STEADY, [120, 121, 119])[0] == "loses"
    assert judged(study, STEADY, [80, 81, 79])[0] == "holds"


STARTS = {
    "cpu-sharegpt": {"baseline": STEADY, "winner": [150, 151, 149]},
    "cpu-short": {"baseline": STEADY, "winner": [80, 81, 79]},
    "cpu-long": {"baseline": STEADY, "winner": "out_of_memory"},
    "cpu-generation": {"baseline": STEADY, "winner": [101, 100, 102]},
}


def test_each_workload_has_its_own_best(study):
    found = best(study, STARTS)
    assert {each.workload: (each.candidate, each.is_recommended) for each in found} == {
        "cpu-sharegpt": ("winner", True),
        "cpu-short": ("baseline", False),
        "cpu-long": ("baseline", False),
        "cpu-generation": ("winner", True),
    }
    short = found[1]
    assert short.command == "serve baseline" and short.change_percent == pytest.approx(25, abs=0.1)
    assert short.change_ci95_low_percent < 25 < short.change_ci95_high_percent
    assert short.why.startswith("+25.0 % (95 % interval")
    assert short.why.endswith("against the recommended configuration")
    assert found[2].why == "the recommended configuration has no valid run here" and found[2].change_percent is None


def test_where_the_baseline_is_kept_a_proposal_that_is_proved_elsewhere_is_named_there(study):
    faster = {"baseline": STEADY, "winner": [150, 151, 149]}
    found = best(
        study, {"cpu-sharegpt": {"baseline": STEADY, "winner": [150, 90, 80]}, "cpu-short": faster}, "baseline"
    )
    assert [(each.candidate, each.is_recommended) for each in found] == [("baseline", True), ("winner", False)]
    assert found[1].change_percent == pytest.approx(50, abs=0.1)


@pytest.mark.parametrize(
    "sides",
    [
        {"baseline": [100, 140, 120], "winner": [95, 145, 105]},  # within noise
        {"baseline": [100.0], "winner": [60.0]},  # one pair proves nothing
    ],
)
def test_a_difference_that_is_not_proved_keeps_the_winner(study, sides):
    found = best(study, {"cpu-short": sides})
    assert found[0].is_recommended and found[0].why == "the baseline is not better beyond noise and margin"
