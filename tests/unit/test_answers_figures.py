"""Every figure of each instrument, computed another way; limits at the very end of an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from scipy import stats

from servelab.answers.comparison import (
    CANNOT_TELL,
    CHANGES,
    SAME,
    Allowed,
    Comparison,
    Figure,
    InstrumentFinding,
    mcnemar_p,
    paired_difference,
)
from servelab.answers.instruments import INSTRUMENTS
from servelab.answers.instruments.distance import skewed_mean
from servelab.answers.question import Answer

TOTAL = 200


def side(texts: Sequence[str | None], right: Sequence[bool | None] | None = None) -> dict[str, Answer]:
    """Answers by question; None is a missing one."""
    grades = right or [None] * len(texts)
    return {
        f"q{number:04}": Answer(f"q{number:04}", text, 3, "stop", grade)
        for number, (text, grade) in enumerate(zip(texts, grades, strict=True))
        if text is not None
    }


def find(
    name: str,
    baseline: dict[str, Answer],
    candidate: dict[str, Answer],
    floor: dict[str, Answer] | None = None,
    confidence: float = 0.95,
    expect_same: bool = False,
    **allowed: float,
) -> InstrumentFinding:
    comparison = Comparison(
        sorted(baseline), baseline, candidate, Allowed(**allowed), confidence, floor, expect_same=expect_same
    )
    found = INSTRUMENTS.get(name).find(comparison)
    assert found is not None
    return found


def figures(finding: InstrumentFinding) -> dict[str, Figure]:
    return {each.name: each for each in finding.figures}


def wilson(successes: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    found = stats.binomtest(successes, total).proportion_ci(confidence, method="wilson")
    return found.low, found.high


BASE = side(["abcd"] * TOTAL)
SIXTH = side(["abcd"] * 150 + ["abXX"] * 30 + ["Xbcd"] * 10 + [None] * 10)
"""150 equal; half of the text differs, a quarter does, none is there."""


def test_agreement_is_judged_by_the_whole_interval_and_its_ends_count() -> None:
    equal = figures(find("agreement", BASE, SIXTH))["equal_answers"]
    assert equal.low is not None and equal.high is not None
    for limit, verdict in (
        (equal.low, SAME),
        (math.nextafter(equal.low, 100), CANNOT_TELL),
        (equal.high, CANNOT_TELL),
        (math.nextafter(equal.high, 100), CHANGES),
    ):
        assert find("agreement", BASE, SIXTH, least_agreement_percent=limit).verdict == verdict, limit


def logprobs(*shares: dict[str, float] | None) -> dict[str, Answer]:
    """Answers whose first tokens have these probabilities."""
    found = side(["abcd"] * len(shares))
    return {
        key: replace(
            answer,
            first_token_logprobs=None if share is None else {token: math.log(value) for token, value in share.items()},
        )
        for (key, answer), share in zip(found.items(), shares, strict=True)
    }


def near(share: float) -> dict[str, float]:
    return {"a": share, "b": 1 - share}


HALF = near(0.5)
FAR = [0.1 + 0.004 * number for number in range(100)]
KL = [0.5 * math.log(0.5 / share) + 0.5 * math.log(0.5 / (1 - share)) for share in FAR]


def test_the_divergence_has_its_interval_floor_limit_and_smallest_loss() -> None:
    baseline = logprobs(*[HALF] * 100, None)
    candidate = logprobs(*map(near, FAR), HALF)
    floor = logprobs(*[near(0.4)] * 50, *[HALF] * 51)
    found = find("distance", baseline, candidate, floor, confidence=0.99, most_kl_nats=1.0)
    (kl,) = found.figures
    mean, low, high = skewed_mean(KL, 0.95)
    assert (kl.instrument, kl.name, kl.unit) == ("distance", "first_token_kl", "nats")
    assert (kl.value, kl.low, kl.high) == pytest.approx((mean, low, high))
    assert kl.floor == pytest.approx((0.5 * math.log(0.5 / 0.4) + 0.5 * math.log(0.5 / 0.6)) / 2)
    assert (kl.allowed, kl.questions) == (1.0, 100)
    _, low, _ = skewed_mean(KL, 0.99)
    assert low is not None
    assert found.smallest_loss == pytest.approx(1.0 + mean - low) and found.loss_unit == "nats"
    assert found.verdict == SAME
    assert found.why == f"at most 1: first token kl {mean:.3g} nats over 100 questions"


def kl_of(here: dict[str, float], there: dict[str, float]) -> float | None:
    return find("distance", logprobs(*[here] * 3), logprobs(*[there] * 3)).figures[0].value


def graded(right: int, total: int = TOTAL) -> dict[str, Answer]:
    return side(["abcd"] * total, [number < right for number in range(total)])


def test_tasks_have_each_figure_with_its_interval_and_floor() -> None:
    candidate = side(["abcd"] * TOTAL, [10 <= number < 115 for number in range(TOTAL)])
    floor = graded(118)
    found = find("tasks", graded(110), candidate, floor, confidence=0.99, task_loss_points=3)
    shown = figures(found)
    assert list(shown) == ["baseline_accuracy", "candidate_accuracy", "loss", "mcnemar_p"]
    for name, right in (("baseline_accuracy", 110), ("candidate_accuracy", 105)):
        low, high = wilson(right, TOTAL)
        each = shown[name]
        assert (each.value, each.unit, each.questions) == (pytest.approx(100 * right / TOTAL), "percent", TOTAL)
        assert (each.low, each.high) == pytest.approx((100 * low, 100 * high))
        assert (each.floor, each.allowed) == (None, None)
    interval, wide = paired_difference(10, 5, TOTAL), paired_difference(10, 5, TOTAL, 0.99)
    assert interval.low is not None and interval.high is not None and wide.low is not None
    loss = shown["loss"]
    assert (loss.value, loss.unit, loss.questions) == (2.5, "points", TOTAL)
    assert (loss.low, loss.high) == pytest.approx((100 * interval.low, 100 * interval.high))
    assert (loss.floor, loss.allowed) == (-4, 3)  # the other start has 8 more right
    p = stats.binomtest(10, 15, 0.5).pvalue
    assert (shown["mcnemar_p"].value, shown["mcnemar_p"].unit) == (pytest.approx(p), "probability")
    assert shown["mcnemar_p"].questions == TOTAL
    assert found.smallest_loss == pytest.approx(3 + 2.5 - 100 * wide.low) and found.loss_unit == "points"
    assert "right answers 55.0 % with the baseline, 52.5 % with the candidate, of 200 questions" in found.why
    assert "10 lost, 5 gained, a loss of 2.5 points" in found.why
    assert f"(95 % interval {100 * interval.low:.1f} to {100 * interval.high:.1f}), 3 allowed" in found.why
    floor_lost = find("tasks", graded(110), candidate, graded(100)).figures[2].floor
    assert floor_lost == pytest.approx(5)
    assert find("tasks", graded(110), candidate, {}).figures[2].floor == 55


def test_a_loss_changes_answers_by_the_interval_and_by_mcnemar_s_test_both() -> None:
    """Ends of the interval are allowed, and a p of exactly the error is significant."""
    baseline, candidate = graded(120), graded(105)
    interval = paired_difference(15, 0, TOTAL)
    assert interval.low is not None and interval.high is not None
    low, high = 100 * interval.low, 100 * interval.high
    for limit, verdict in (
        (math.nextafter(low, 0), CHANGES),
        (low, CANNOT_TELL),
        (math.nextafter(high, 0), CANNOT_TELL),
        (high, SAME),
    ):
        assert find("tasks", baseline, candidate, task_loss_points=limit).verdict == verdict, limit
    six = graded(114)
    p = mcnemar_p(6, 0)
    assert (paired_difference(6, 0, TOTAL, 1 - p).low or 0) > 0
    assert find("tasks", baseline, six, confidence=1 - p, task_loss_points=0).verdict == CHANGES
    assert find("tasks", baseline, graded(115), task_loss_points=0).verdict == CANNOT_TELL  # five: p is 0.0625
