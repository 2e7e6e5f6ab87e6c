"""The verdict on answers: what loses, what passes, and what must never pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from scipy import optimize

from servelab.answers.comparison import CANNOT_TELL, CHANGES, NOT_MEASURED, SAME, paired_difference
from servelab.answers.judge import AnswersVerdict, judge
from servelab.answers.question import Answer

ALLOWED = 2.0


def answers(right: Sequence[bool | None], *, changed: Sequence[int] = ()) -> list[Answer]:
    """An answer to each question; those of `changed` have another text with the same grade."""
    return [
        Answer(f"q{number:04}", f"text {number}{' x' if number in changed else ''} {grade}", 5, "stop", grade)
        for number, grade in enumerate(right)
    ]


def graded(count: int, right: int) -> list[Answer]:
    return answers([number < right for number in range(count)])


def verdict(baseline: Sequence[Answer], candidate: Sequence[Answer]) -> AnswersVerdict:
    return judge({"b-0": baseline}, {"c-0": candidate}, ALLOWED)


def test_a_loss_beyond_the_allowed_changes_answers():
    found = verdict(graded(200, 120), graded(200, 100))
    assert found.verdict == CHANGES
    assert "120" not in found.why
    assert "60.0 % with the baseline, 50.0 % with the candidate" in found.why


def test_missing_answers_are_lost():
    baseline = graded(200, 120)
    assert verdict(baseline, baseline[20:]).verdict == CHANGES
    failed = [replace(answer, text="", correct=None, failure="timed out") for answer in baseline]
    assert verdict(baseline, [*failed[:20], *baseline[20:]]).verdict == CHANGES
    assert verdict(baseline, failed).verdict == CHANGES
    assert verdict(baseline, []).verdict == CHANGES
    assert verdict(baseline, baseline[1:]).verdict == CANNOT_TELL


@pytest.mark.parametrize(
    ("baseline", "candidate", "expected"),
    [
        ({}, {"c": graded(200, 200)}, NOT_MEASURED),
        ({"b": []}, {"c": graded(200, 200)}, NOT_MEASURED),
        ({"b": graded(200, 200)}, {}, NOT_MEASURED),
        ({"b": graded(200, 200)}, {"c": graded(201, 200)}, CANNOT_TELL),
        ({"b": [replace(answer, failure="refused") for answer in graded(200, 200)]}, {"c": []}, CANNOT_TELL),
    ],
)
def test_nothing_to_compare_never_passes(baseline, candidate, expected):
    assert judge(baseline, candidate, ALLOWED).verdict == expected


def test_every_start_of_the_candidate_must_hold():
    good, bad = graded(200, 120), graded(200, 60)
    for starts in ({"c-0": good, "c-1": bad}, {"c-0": bad, "c-1": good}):
        found = judge({"b-0": good}, starts, ALLOWED)
        assert found.verdict == CHANGES
        assert "a loss of 30.0 points" in found.why  # the figures are those of the start that decided


def test_a_baseline_that_differs_from_itself_blames_no_candidate():
    good, bad = graded(200, 120), graded(200, 60)
    for starts in ({"b-0": good, "b-1": bad}, {"b-0": bad, "b-1": good}):
        found = judge(starts, {"c-0": bad}, ALLOWED)
        assert found.verdict == CANNOT_TELL
        assert "the starts of the baseline differ among themselves" in found.why
    assert judge({"b-0": good, "b-1": good}, {"c-0": bad}, ALLOWED).verdict == CHANGES
    assert judge({"b-0": good, "b-1": good}, {"c-0": good}, ALLOWED).verdict == SAME


def score(lost: int, gained: int, total: int, difference: float) -> float:
    """Tango's statistic, with the nuisance parameter by a search for the largest likelihood."""
    rest = total - lost - gained

    def loss(share: float) -> float:
        parts = [(lost, share + difference), (gained, share), (rest, 1 - 2 * share - difference)]
        return -sum(number * math.log(part) for number, part in parts if number)

    low, high = max(0.0, -difference) + 1e-12, (1 - difference) / 2 - 1e-12
    share = optimize.minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
    return (lost - gained - total * difference) / math.sqrt(total * (2 * share + difference * (1 - difference)))


@pytest.mark.parametrize(
    ("lost", "gained", "total"), [(12, 2, 50), (2, 12, 50), (7, 7, 200), (30, 21, 1000), (9, 1, 200)]
)
def test_the_interval_of_a_loss_is_tango_s(lost, gained, total):
    found = paired_difference(lost, gained, total)
    assert found.value == (lost - gained) / total
    assert score(lost, gained, total, found.low) == pytest.approx(1.959964, abs=2e-3)
    assert score(lost, gained, total, found.high) == pytest.approx(-1.959964, abs=2e-3)
