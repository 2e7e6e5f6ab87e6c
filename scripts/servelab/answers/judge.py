"""Whether a candidate gives the baseline's answers: of both sides' answers to the same questions, one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from servelab.answers import agreement as texts
from servelab.answers.paired_shares import loss_interval, mcnemar_p, smallest_seen
from servelab.answers.question import Answers, Question, without_answer
from servelab.core.run_spec import Strict

Verdict = Literal["same answers", "changes answers", "cannot tell", "not measured"]
MOST_MISSING = 0.05
"""Share of the baseline's questions that may have no answer; with more there is nothing to compare with."""


class AnswersVerdict(Strict):
    """A candidate's answers beside the baseline's."""

    verdict: Verdict = Field(
        description="`changes answers`: more right answers are lost than allowed, beyond noise. `same answers`: every "
        "text is the same, or a larger loss than allowed is excluded. `cannot tell`: neither."
    )
    note: str = Field(description="The figures behind it, in words.")
    questions: int = Field(description="Questions asked.")
    graded: int = Field(0, description="Questions with a known answer.")
    baseline_right: int | None = Field(None, description="Graded questions that the baseline answered right.")
    right: int | None = Field(None, description="Graded questions that the candidate answered right.")
    lost: int | None = Field(None, description="Questions that only the baseline answered right.")
    gained: int | None = Field(None, description="Questions that only the candidate answered right.")
    loss_points: float | None = Field(
        None, description="Right answers lost, in percentage points of the graded questions."
    )
    loss_points_low: float | None = Field(None, description="Lower end of its 95 % interval (Tango's score interval).")
    loss_points_high: float | None = Field(None, description="Upper end of its 95 % interval.")
    mcnemar_p: float | None = Field(None, description="p of McNemar's exact test, two-sided.")
    allowed_loss_points: float | None = Field(
        None, description="What the study allows to be lost, in percentage points."
    )
    smallest_loss_seen_points: float | None = Field(
        None, description="The smallest loss that would have been called `changes answers`; missing if none would."
    )
    agreement_percent: float | None = Field(
        None, description="Questions with the same text as the baseline's, in percent."
    )
    floor_percent: float | None = Field(
        None, description="The same between server starts of the baseline; missing with one start."
    )
    warning: str | None = Field(
        None, description="Said where texts differ though the change is expected to leave them the same."
    )


def not_measured(why: str) -> AnswersVerdict:
    """The verdict where there are no answers to compare."""
    return AnswersVerdict(verdict="not measured", note=why, questions=0)


def judge(
    questions: Sequence[Question],
    baseline: Sequence[Answers],
    candidate: Sequence[Answers],
    allowed_loss_points: float,
    *,
    expected_same: bool = False,
) -> AnswersVerdict:
    """The verdict on a candidate; each side has the answers of one server start or more.

    A question counts as right on a side if it is right on at least half of its starts. Without an answer it is wrong,
    so a candidate that leaves questions unanswered loses them. `expected_same`: the change should leave greedy texts
    the same, so a difference beyond the baseline's own is a warning.
    """
    if not questions or not baseline or not candidate:
        return not_measured("no answers")
    alike, floor = texts.agreement(questions, baseline, candidate), texts.floor(questions, baseline)
    common: dict[str, Any] = {
        "questions": len(questions),
        "allowed_loss_points": allowed_loss_points,
        "agreement_percent": 100 * alike,
        "floor_percent": None if floor is None else 100 * floor,
    }
    said = f"{100 * alike:.0f} % of the answers are the same text"
    if floor is not None and floor < 1:
        said += f" ({100 * floor:.0f} % between starts of the baseline)"
    if expected_same and alike < (1.0 if floor is None else floor):
        common["warning"] = f"{said}; this change should leave them the same"
    graded = [question for question in questions if question.expected is not None]
    missing = without_answer(questions, baseline)
    if missing > MOST_MISSING:
        why = f"cannot tell: the baseline left {100 * missing:.0f} % of the questions unanswered"
        return AnswersVerdict.model_validate({**common, "verdict": "cannot tell", "note": why})
    if not graded:
        verdict = "same answers" if alike == 1 else "cannot tell"
        note = said if alike == 1 else f"{said}; no question has an answer to grade by"
        return AnswersVerdict.model_validate({**common, "verdict": verdict, "note": note})

    before, after = ([_right(question, side) for question in graded] for side in (baseline, candidate))
    lost = sum(b and not a for b, a in zip(before, after, strict=True))
    gained = sum(a and not b for b, a in zip(before, after, strict=True))
    low, high = loss_interval(lost, gained, len(graded))
    seen = smallest_seen(gained, len(graded), allowed_loss_points / 100)
    if 100 * low > allowed_loss_points:
        verdict = "changes answers"
    elif alike == 1 or 100 * high <= allowed_loss_points:
        verdict = "same answers"
    else:
        verdict = "cannot tell"
    counts = f"{sum(after)} of {len(graded)} questions right against {sum(before)}"
    found = 100 * (lost - gained) / len(graded)
    note = f"{said}, {counts}"
    if verdict == "changes answers":
        interval = f"95 % {100 * low:.1f} to {100 * high:.1f}"
        note += f": {found:.1f} points lost ({interval}), {allowed_loss_points:g} are allowed"
    elif verdict == "cannot tell":
        note += f"; a loss of {100 * seen:.0f} points or more would have been seen" if seen is not None else ""
    return AnswersVerdict.model_validate(
        {
            **common,
            "verdict": verdict,
            "note": note,
            "graded": len(graded),
            "baseline_right": sum(before),
            "right": sum(after),
            "lost": lost,
            "gained": gained,
            "loss_points": found,
            "loss_points_low": 100 * low,
            "loss_points_high": 100 * high,
            "mcnemar_p": mcnemar_p(lost, gained),
            "smallest_loss_seen_points": None if seen is None else 100 * seen,
        }
    )


def _right(question: Question, side: Sequence[Answers]) -> bool:
    """Whether a side is right on at least half of its starts."""
    return 2 * sum(bool(question.is_right(answers.get(question.name))) for answers in side) >= len(side)
