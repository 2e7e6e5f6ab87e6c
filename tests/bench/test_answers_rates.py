"""How often the verdict on answers is wrong, and what losses it finds: studies of made answers whose truth is known.

The baseline has 60 % of the questions right. A candidate loses some of them; as well, `churn` is the share of questions
that change their grade by chance, half of them each way, as quantisation does.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pandas as pd
import pytest
from harness import publish

from servelab.answers.comparison import CANNOT_TELL, CHANGES, SAME, Comparison
from servelab.answers.judge import judge, tasks
from servelab.answers.question import Answer

pytestmark = pytest.mark.bench

STUDIES = 1000
"""Per row."""
RIGHT = 0.6
ALLOWED_POINTS = 2.0
QUESTIONS = (200, 1000)
CHURN_PERCENT = (0, 2, 5, 10, 20)
LOSSES_POINTS = (0, 1, 2, 5, 10)
MOST_ERROR = 0.05
ERRORS = 3
"""Standard errors of a count that it may miss its target by."""


def _most(studies: int) -> float:
    """So many studies of 1,000 may be wrong, chance included."""
    return studies * MOST_ERROR + ERRORS * (studies * MOST_ERROR * (1 - MOST_ERROR)) ** 0.5


def _answers(grades: np.ndarray) -> list[Answer]:
    return [Answer(f"q{number:04}", str(grade), 1, "stop", bool(grade)) for number, grade in enumerate(grades)]


@cache
def _made(questions: int) -> tuple[dict[str, Answer], dict[str, Answer]]:
    """A wrong and a right answer to each question."""
    wrong, right = (_answers(np.full(questions, grade)) for grade in (False, True))
    return {answer.question_id: answer for answer in wrong}, {answer.question_id: answer for answer in right}


@cache
def _verdict(questions: int, lost: int, gained: int) -> str | None:
    """What `tasks` finds in one start of each side, where it alone decides: it depends on these counts."""
    wrong, right = _made(questions)
    keys, most = list(right), round(RIGHT * questions)
    baseline = {key: (right if number < most else wrong)[key] for number, key in enumerate(keys)}
    candidate = baseline | {key: wrong[key] for key in keys[:lost]} | {key: right[key] for key in keys[::-1][:gained]}
    found = tasks(Comparison(keys, baseline, candidate, ALLOWED_POINTS))
    assert found is not None
    return found.verdict


def _counts(draw: np.random.Generator, questions: int, churn: float, loss: float) -> Counter[str | None]:
    """Verdicts of `STUDIES` studies: each question is right, lost or gained on its own."""
    lost_share, gained_share = churn / 2 + loss, churn / 2
    shares = [lost_share, gained_share, RIGHT - lost_share, 1 - RIGHT - gained_share]
    return Counter(
        _verdict(questions, int(lost), int(gained))
        for lost, gained, _, _ in draw.multinomial(questions, shares, STUDIES)
    )


@pytest.fixture(scope="module")
def verdicts() -> dict[tuple[int, int, int], Counter[str | None]]:
    """(questions, churn in percent, loss in points) → verdicts."""
    draw = np.random.default_rng(29)
    return {
        (questions, churn, loss): _counts(draw, questions, churn / 100, loss / 100)
        for questions in QUESTIONS
        for churn in CHURN_PERCENT
        for loss in LOSSES_POINTS
    }


def test_a_loss_that_is_allowed_is_called_a_change_in_at_most_5_percent(verdicts):
    rows = [
        {"questions": questions, "churn, %": churn, "loss, points": loss}
        | {f"{verdict}, %": 100 * counts[verdict] / STUDIES for verdict in (CHANGES, SAME, CANNOT_TELL)}
        for (questions, churn, loss), counts in verdicts.items()
    ]
    publish("answers-rates", "Verdicts on answers", {"One start of each side": pd.DataFrame(rows)})
    for (questions, churn, loss), counts in verdicts.items():
        if loss <= ALLOWED_POINTS:
            assert counts[CHANGES] <= _most(STUDIES), (questions, churn, loss, counts)


def test_a_loss_beyond_the_allowed_is_called_the_same_in_at_most_5_percent(verdicts):
    """At the allowed loss itself, where it is hardest, and above."""
    for (questions, churn, loss), counts in verdicts.items():
        if loss >= ALLOWED_POINTS:
            assert counts[SAME] <= _most(STUDIES), (questions, churn, loss, counts)


def test_large_losses_are_found(verdicts):
    for churn in CHURN_PERCENT[:4]:
        assert verdicts[1000, churn, 10][CHANGES] >= 0.99 * STUDIES
        assert verdicts[1000, churn, 5][CHANGES] >= 0.4 * STUDIES


def test_two_starts_of_each_side_share_the_error():
    """Starts repeat an answer with probability 0.98 each; the candidate loses what is allowed."""
    draw = np.random.default_rng(31)
    wrong: Counter[str] = Counter()
    for _ in range(STUDIES):
        base = draw.random(200) < RIGHT
        worse = base & (draw.random(200) >= ALLOWED_POINTS / 100 / RIGHT)

        def start(grades: np.ndarray) -> list[Answer]:
            return _answers(np.where(draw.random(200) < 0.02, draw.random(200) < 0.5, grades))

        baseline = {"b-0": start(base), "b-1": start(base)}
        wrong[judge(baseline, {"c-0": start(worse), "c-1": start(worse)}, ALLOWED_POINTS).verdict] += 1
    publish("answers-rates-starts", "Two starts of each side, loss as allowed", {"Verdicts": pd.DataFrame([wrong])})
    assert wrong[CHANGES] <= _most(STUDIES)
    assert wrong[SAME] <= _most(STUDIES)
