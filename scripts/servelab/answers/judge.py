"""The verdict on a candidate's answers: every start of the candidate against every start of the baseline.

Two instruments compare them. *Tasks*: right answers to graded questions, paired question by question; the loss is the
share of questions that only the baseline has right, less the share that only the candidate has right. *Missing*:
answers that are not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from servelab.answers.comparison import (
    CANNOT_TELL,
    CHANGES,
    NOT_MEASURED,
    SAME,
    Comparison,
    InstrumentFinding,
    PairedShare,
    mcnemar_p,
    paired_difference,
)
from servelab.answers.question import Answer, by_question

ERROR = 0.05
"""Of all intervals that decide on one candidate, together."""
LEAST_ANSWERED = 0.95
"""Share of the questions that a baseline's start must have answered for a candidate to be called the same."""

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
        return InstrumentFinding("tasks", CANNOT_TELL, why)
    right = {key for key in graded if comparison.baseline[key].correct}
    kept = {key for key in graded if key in comparison.candidate and comparison.candidate[key].correct}
    lost, gained, total = len(right - kept), len(kept - right), len(graded)
    shown = paired_difference(lost, gained, total)
    decides = paired_difference(lost, gained, total, comparison.confidence)
    accuracy, limit = 100 * len(right) / total, comparison.allowed_points
    smallest = limit + 100 * (decides.value - decides.low)
    verdict, reason = _judge_loss(decides, mcnemar_p(lost, gained), 1 - comparison.confidence, limit, accuracy)
    found = (
        f"right answers {accuracy:.1f} % with the baseline, {100 * len(kept) / total:.1f} % with the "
        f"candidate, of {total:,} questions: {lost} lost, {gained} gained, a loss of {100 * shown.value:.1f} "
        f"points (95 % interval {100 * shown.low:.1f} to {100 * shown.high:.1f}), {limit:g} allowed"
    )
    return InstrumentFinding("tasks", verdict, f"{reason}: {found}", smallest)


def _judge_loss(loss: PairedShare, p: float, error: float, limit: float, accuracy_percent: float) -> tuple[str, str]:
    if 100 * loss.low > limit and p <= error:
        return CHANGES, "more is lost than is allowed, beyond noise"
    if 100 * loss.high > limit:
        return CANNOT_TELL, "the interval reaches beyond the allowed loss"
    if accuracy_percent < LEAST_RIGHT_PERCENT:
        least = f"the baseline has fewer than {LEAST_RIGHT_PERCENT:g} % right"
        return CANNOT_TELL, f"{least}, so that there is too little to lose; ask easier questions"
    return SAME, "the loss is within what is allowed"


def missing(comparison: Comparison) -> InstrumentFinding | None:
    """Answers that are not there."""
    total = len(comparison.questions)
    lost = [key for key in comparison.questions if key not in comparison.candidate]
    decides = paired_difference(len(lost), 0, total, comparison.confidence)
    limit = comparison.allowed_points
    beyond = 100 * decides.low > limit and mcnemar_p(len(lost), 0) <= 1 - comparison.confidence
    why = f"{len(lost):,} of {total:,} answers are missing ({100 * len(lost) / total:.1f} %, {limit:g} % allowed)"
    return InstrumentFinding("missing", CHANGES if beyond else None, why)


INSTRUMENTS = (missing, tasks)
"""Each returns its findings; None if the answers have nothing for it."""


Starts = Mapping[str, Sequence[Answer]]
"""Answers by label of the server start."""


@dataclass(frozen=True)
class AnswersVerdict:
    """The verdict on a candidate's answers."""

    verdict: str
    """`same`, `changes answers`, `cannot tell` or `not measured`; docs/search.md explains them."""
    why: str
    """Reason for the verdict, with the figures that decided."""
    smallest_loss_points: float | None = None
    """Smallest loss of right answers that would have been seen, in points; None if no question is graded."""


def judge(baseline: Starts, candidate: Starts, allowed_points: float) -> AnswersVerdict:
    """The verdict on a candidate from the answers of its starts and of the baseline's, each start's by its label.

    - `changes answers`: a start of the candidate loses more than is allowed, beyond noise, against every start of the
      baseline. All comparisons that decide share an error of 5 %.
    - `same`: every start of the candidate is within what is allowed, against every start of the baseline.
    - `cannot tell`: everything else, with the smallest loss that would have been seen.
    - `not measured`: one side has no start, or the baseline was asked nothing.

    A start without answers to the questions has lost them.
    """
    answered = {start: by_question(answers) for start, answers in baseline.items()}
    given = {start: by_question(answers) for start, answers in candidate.items()}
    asked = {answer.question_id for answers in baseline.values() for answer in answers}
    if not asked or not candidate:
        missing = "candidate" if asked else "baseline"
        return AnswersVerdict(NOT_MEASURED, f"the {missing}'s answers were not measured")
    others = {answer.question_id for answers in candidate.values() for answer in answers} - asked
    if others:
        why = f"the candidate was asked other questions than the baseline, such as {min(others)}"
        return AnswersVerdict(CANNOT_TELL, why)
    if not any(answered.values()):
        return AnswersVerdict(CANNOT_TELL, "the baseline answered none of the questions")
    confidence = 1 - ERROR / len(given)  # a missing answer is a wrong one to `tasks` too, so that chance counts once
    found = {start: _against_all(answered, answers, allowed_points, confidence) for start, answers in given.items()}
    return _summary(found, min(map(len, answered.values())), len(asked))


def _against_all(
    baseline: Mapping[str, Mapping[str, Answer]],
    candidate: Mapping[str, Answer],
    allowed_points: float,
    confidence: float,
) -> list[InstrumentFinding]:
    """Each instrument's findings in a start against all of the baseline's."""
    found: dict[str, list[InstrumentFinding]] = {}
    for answers in filter(None, baseline.values()):
        comparison = Comparison(sorted(answers), answers, candidate, allowed_points, confidence)
        for instrument in INSTRUMENTS:
            finding = instrument(comparison)
            if finding is not None:
                found.setdefault(finding.instrument, []).append(finding)
    return [_of_all(findings) for findings in found.values()]


def _of_all(findings: Sequence[InstrumentFinding]) -> InstrumentFinding:
    """One finding of those against each start of the baseline."""
    first, verdicts = findings[0], {finding.verdict for finding in findings}
    if len(verdicts) == 1:
        return first
    if verdicts == {CHANGES, None}:
        return replace(first, verdict=None)
    why = f"the starts of the baseline differ among themselves; {first.why}"
    return replace(first, verdict=CANNOT_TELL, why=why)


def _summary(found: Mapping[str, Sequence[InstrumentFinding]], fewest: int, asked: int) -> AnswersVerdict:
    """The verdict from the findings in each start; `fewest` are the least answers of a start of the baseline."""
    ranked = [
        (rank, finding)
        for rank, verdict in enumerate((CHANGES, CANNOT_TELL, SAME))
        for findings in found.values()
        for finding in findings
        if finding.verdict == verdict
    ]
    if not ranked:
        verdict, why = CANNOT_TELL, "no question is graded; the figures are reported only"
    else:
        finding = ranked[0][1]
        verdict, why = str(finding.verdict), f"{finding.instrument}: {finding.why}"
    if verdict == SAME and fewest < LEAST_ANSWERED * asked:
        verdict, why = CANNOT_TELL, f"a start of the baseline answered only {fewest:,} of {asked:,} questions; {why}"
    losses = [each.smallest_loss for findings in found.values() for each in findings if each.smallest_loss is not None]
    smallest = max(losses, default=None)
    if verdict == CANNOT_TELL and smallest is not None:
        why += f"; a loss of {smallest:.1f} points or more would have been seen"
    return AnswersVerdict(verdict, why, smallest)
