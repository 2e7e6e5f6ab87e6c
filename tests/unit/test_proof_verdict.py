"""Verdicts of a proof: at their limits, in both directions, and in words."""

from __future__ import annotations

import math

import pytest

from servelab.search.proof import VERDICTS, ProofPair, judge_proof

MIRRORED = {"better": "worse", "worse": "better"}


def pairs_with(change, half):
    """Three pairs whose change is `change` percent ± `half` percent, both as ratios: t(0.975, 2) / √3 = 2.484136."""
    step = math.log1p(half / 100) / 2.484136
    return [ProofPair(50.0, 50.0 * (1 + change / 100) * math.exp(offset)) for offset in (step, 0.0, -step)]


@pytest.mark.parametrize(
    ("change", "half", "margin", "verdict"),
    [
        (10, 3, 2, "better"),
        (10, 12, 2, "cannot tell"),  # includes no change
        (2.5, 1.5, 2, "better"),  # the interval may reach into the margin, the estimate not
        (1.8, 1.0, 2, "cannot tell"),  # a change, but perhaps a small one
        (1.5, 0.3, 2, "same"),  # a change, surely a small one
        (0.5, 1, 2, "same"),
        (0.5, 1.6, 2, "cannot tell"),  # reaches 2.1 %
        (-0.5, 1.6, 2, "cannot tell"),
        (-0.5, 1, 2, "same"),
        (-1.8, 1.0, 2, "cannot tell"),
        (-2.5, 1.5, 2, "worse"),
        (-10, 12, 2, "cannot tell"),
        (-10, 3, 2, "worse"),
        (0.5, 0.3, 0, "better"),
        (0.2, 0.3, 0, "cannot tell"),
    ],
)
def test_verdict(change, half, margin, verdict):
    pairs = pairs_with(change, half)
    found = judge_proof(pairs, margin_percent=margin, higher_is_better=True)
    assert found.verdict == verdict
    assert found.holds == (verdict == "better")
    # 12 % of starts 20 % slower take 2.6 %
    assert ("no slower starts than were drawn" in found.why) == (found.holds and change < 10)
    lower = judge_proof(pairs, margin_percent=margin, higher_is_better=False)
    assert lower.verdict == MIRRORED.get(verdict, verdict)
    # The figures are of the metric, whichever direction is better.
    assert lower.change_percent == found.change_percent == pytest.approx(change)
    assert found.smallest_change_percent == pytest.approx(half, rel=1e-5)
    assert found.change_ci95_low_percent == pytest.approx(100 * ((1 + change / 100) / (1 + half / 100) - 1), rel=1e-4)
    assert found.change_ci95_high_percent == pytest.approx(100 * ((1 + change / 100) * (1 + half / 100) - 1), rel=1e-4)
    assert found.pairs == 3


def test_promise_and_finding_are_side_by_side():
    found = judge_proof(pairs_with(10, 3), margin_percent=2, higher_is_better=True, promised_percent=18.04)
    assert found.promised_change_percent == 18.04
    assert found.why == (
        "the gain holds: the search promised +18.0 %, 3 pairs of fresh starts found +10.0 % "
        "(95 % interval +6.8 to +13.3 %)"
    )
    worse = judge_proof(pairs_with(-10, 3), margin_percent=2, higher_is_better=True)
    assert worse.why == (
        "the winner of the search is worse than the baseline: 3 pairs of fresh starts found -10.0 % "
        "(95 % interval -12.6 to -7.3 %)"
    )

    visited = judge_proof(pairs_with(10, 3), margin_percent=2, higher_is_better=True, of="visits")
    assert visited.why.startswith("the gain holds: 3 pairs of visits found +10.0 %")


@pytest.mark.parametrize(
    ("pairs", "text"), [([], "sound: the search promised +4.0 %"), ([ProofPair(100.0, 150.0)], "1 pair of")]
)
def test_without_an_interval_nothing_can_be_told(pairs, text):
    found = judge_proof(pairs, margin_percent=2, higher_is_better=True, promised_percent=4)
    assert found.verdict == "cannot tell"
    assert "fewer than two pairs are sound" in found.why
    assert text in found.why
    assert found.smallest_change_percent is None
    assert found.change_ci95_low_percent is None


def test_failure_and_disturbance_are_verdicts_of_their_own():
    good = pairs_with(10, 3)
    disturbed = judge_proof(good, margin_percent=2, higher_is_better=True, disturbed="others used 43 % of the CPUs")
    assert (disturbed.verdict, disturbed.holds) == ("disturbed", False)
    assert disturbed.why.startswith("the proof was disturbed, also when it was measured again: others used 43 %")
    assert disturbed.change_percent == pytest.approx(10)  # still shown
    failed = judge_proof(
        [], margin_percent=2, higher_is_better=True, promised_percent=9, failed="out of memory", disturbed="others"
    )
    assert (failed.verdict, failed.holds, failed.pairs) == ("failed", False, 0)
    assert failed.why == "failed in the proof: out of memory: the search promised +9.0 %"
    assert {disturbed.verdict, failed.verdict, "better", "worse", "same", "cannot tell"} == set(VERDICTS)
