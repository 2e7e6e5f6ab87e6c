"""Instruments: ways to compare a candidate's answers with the baseline's.

- *Tasks*: right answers to graded questions, paired question by question. The loss is the share of questions that only
  the baseline has right, less the share that only the candidate has right.
- *Missing*: answers that are not there.
- *Agreement*: greedy answers that are equal to the baseline's. Another start of the same baseline gives the floor: what
  nondeterminism alone changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from servelab.answers.comparison import (
    CANNOT_TELL,
    CHANGES,
    SAME,
    Comparison,
    Figure,
    InstrumentFinding,
    PairedShare,
    mcnemar_p,
    paired_difference,
    share_interval,
)
from servelab.answers.question import Answer

LEAST_RIGHT_PERCENT = 20.0
"""Where the baseline has fewer right there is too little to lose for `same`."""


def tasks(comparison: Comparison) -> InstrumentFinding | None:
    """Right answers to graded questions: a missing one is not right; without a grade the loss is not known."""
    graded = [key for key in comparison.questions if comparison.baseline[key].correct is not None]
    if not graded:
        return None
    ungraded = [key for key in graded if key in comparison.candidate and comparison.candidate[key].correct is None]
    if ungraded:
        why = f"the candidate's answer to {ungraded[0]} has no grade, and the baseline's has one"
        return InstrumentFinding(instrument="tasks", verdict=CANNOT_TELL, why=why)
    right = {key for key in graded if comparison.baseline[key].correct}
    kept = {key for key in graded if key in comparison.candidate and comparison.candidate[key].correct}
    lost, gained, total = len(right - kept), len(kept - right), len(graded)
    shown = paired_difference(lost, gained, total)
    decides = paired_difference(lost, gained, total, comparison.confidence)
    p = mcnemar_p(lost, gained)
    accuracy = share_interval(len(right), total)
    floor = _floor_loss(comparison, graded, right)
    limit = comparison.allowed.task_loss_points
    smallest = limit + 100 * (decides.value - decides.low)
    verdict, reason = _judge_loss(decides, p, 1 - comparison.confidence, limit, 100 * accuracy.value)
    figures = [
        accuracy.figure("tasks", "baseline_accuracy", total),
        share_interval(len(kept), total).figure("tasks", "candidate_accuracy", total),
        shown.figure("tasks", "loss", total, unit="points", floor=floor, allowed=limit),
        Figure(instrument="tasks", name="mcnemar_p", unit="probability", value=p, questions=total),
    ]
    found = (
        f"right answers {100 * accuracy.value:.1f} % with the baseline, {100 * len(kept) / total:.1f} % with the "
        f"candidate, of {total:,} questions: {lost} lost, {gained} gained, a loss of {100 * shown.value:.1f} "
        f"points (95 % interval {100 * shown.low:.1f} to {100 * shown.high:.1f}), {limit:g} allowed"
    )
    return InstrumentFinding(
        instrument="tasks",
        verdict=verdict,
        why=f"{reason}: {found}",
        smallest_loss=smallest,
        figures=figures,
    )


def _judge_loss(loss: PairedShare, p: float, error: float, limit: float, accuracy_percent: float) -> tuple[str, str]:
    if 100 * loss.low > limit and p <= error:
        return CHANGES, "more is lost than is allowed, beyond noise"
    if 100 * loss.high > limit:
        return CANNOT_TELL, "the interval reaches beyond the allowed loss"
    if accuracy_percent < LEAST_RIGHT_PERCENT:
        least = f"the baseline has fewer than {LEAST_RIGHT_PERCENT:g} % right"
        return CANNOT_TELL, f"{least}, so that there is too little to lose; ask easier questions"
    return SAME, "the loss is within what is allowed"


def _floor_loss(comparison: Comparison, graded: list[str], right: set[str]) -> float | None:
    """The loss of the baseline's other start, in points."""
    other = comparison.floor
    if other is None:
        return None
    kept = sum(key in other and bool(other[key].correct) for key in graded)
    return 100 * (len(right) - kept) / len(graded)


def missing(comparison: Comparison) -> InstrumentFinding | None:
    """Answers that are not there."""
    total = len(comparison.questions)
    lost = [key for key in comparison.questions if key not in comparison.candidate]
    share = paired_difference(len(lost), 0, total)
    decides = paired_difference(len(lost), 0, total, comparison.confidence)
    limit = comparison.allowed.task_loss_points
    other = comparison.floor
    floor = None if other is None else 100 * sum(key not in other for key in comparison.questions) / total
    beyond = 100 * decides.low > limit and mcnemar_p(len(lost), 0) <= 1 - comparison.confidence
    why = f"{len(lost):,} of {total:,} answers are missing ({100 * share.value:.1f} %, {limit:g} % allowed)"
    figure = share._replace(low=max(0.0, share.low)).figure("missing", "missing", total, floor=floor, allowed=limit)
    return InstrumentFinding(instrument="missing", verdict=CHANGES if beyond else None, why=why, figures=[figure])


def agreement(comparison: Comparison) -> InstrumentFinding | None:
    """Equal answers. A missing answer is not equal to any."""
    total = len(comparison.questions)
    equal = _equal(comparison, comparison.candidate)
    share = share_interval(equal, total)
    floor = None if comparison.floor is None else 100 * _equal(comparison, comparison.floor) / total
    found = f"{equal:,} of {total:,} answers are equal ({100 * share.value:.1f} %"
    found += ", a second start of the baseline was not measured)" if floor is None else f", baseline {floor:.1f} %)"
    return InstrumentFinding(
        instrument="agreement",
        verdict=None,
        why=f"reported: {found}",
        figures=[share.figure("agreement", "equal_answers", total, floor=floor)],
    )


def _equal(comparison: Comparison, answers: Mapping[str, Answer]) -> int:
    baseline = comparison.baseline
    return sum(key in answers and answers[key].text == baseline[key].text for key in comparison.questions)


INSTRUMENTS = (agreement, missing, tasks)
"""Each returns its findings; None if the answers have nothing for it."""
