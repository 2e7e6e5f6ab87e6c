"""The other workloads: the answer reports where the winner loses."""

import math

import pytest
from made_study import ROOT, stage_rows

from servelab.metrics.statistics import change_of_pairs, ratio_interval
from servelab.search.recommend import judge_loss
from servelab.search.recommended import Improvement
from servelab.study.recorded.study import load_recorded
from servelab.study.study import CONFIRM


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
    assert judged(study, [100], [94], ratio_interval)[0] == "loses"
    assert judged(study, [100], [96], ratio_interval)[0] == "holds"


def test_more_of_a_latency_is_a_loss(study):
    objective = study.objective.model_copy(update={"metric": "ttft_ms"})
    study = study.model_copy(update={"objective": objective})
    assert judged(study, STEADY, [120, 121, 119])[0] == "loses"
    assert judged(study, STEADY, [80, 81, 79])[0] == "holds"
