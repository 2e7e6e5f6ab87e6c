"""The verdict on a candidate's answers: every start of the candidate against every start of the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servelab.answers.comparison import CANNOT_TELL, CHANGES, NOT_MEASURED, SAME, Allowed, Comparison, InstrumentFinding
from servelab.answers.instruments import INSTRUMENTS
from servelab.answers.question import Answer, by_question

ERROR = 0.05
"""Of all intervals that decide on one candidate, together."""
LEAST_ANSWERED = 0.95
"""Share of the questions that a baseline's start must have answered for a candidate to be called the same."""

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
    findings: Sequence[InstrumentFinding] = ()
    """What each instrument found in the start that decided, against the first baseline's."""


def judge(baseline: Starts, candidate: Starts, allowed: Allowed) -> AnswersVerdict:
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
    found = {start: _against_all(answered, answers, allowed, confidence) for start, answers in given.items()}
    return _summary(found, min(map(len, answered.values())), len(asked))


def _against_all(
    baseline: Mapping[str, Mapping[str, Answer]],
    candidate: Mapping[str, Answer],
    allowed: Allowed,
    confidence: float,
) -> list[InstrumentFinding]:
    """Each instrument's findings in a start: the figures against the first baseline's, the verdict against all."""
    found: dict[str, list[InstrumentFinding]] = {}
    starts = [start for start, answers in baseline.items() if answers]
    for number, start in enumerate(starts):
        comparison = Comparison(
            questions=sorted(baseline[start]),
            baseline=baseline[start],
            candidate=candidate,
            allowed=allowed,
            confidence=confidence,
            floor=baseline[starts[(number + 1) % len(starts)]] if len(starts) > 1 else None,
        )
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
        return first.model_copy(update={"verdict": None})
    why = f"the starts of the baseline differ among themselves; {first.why}"
    return first.model_copy(update={"verdict": CANNOT_TELL, "why": why})


def _summary(found: Mapping[str, Sequence[InstrumentFinding]], fewest: int, asked: int) -> AnswersVerdict:
    """The verdict from the findings in each start; `fewest` are the least answers of a start of the baseline."""
    ranked = [
        (rank, finding, start)
        for rank, verdict in enumerate((CHANGES, CANNOT_TELL, SAME))
        for start, findings in found.items()
        for finding in findings
        if finding.verdict == verdict
    ]
    if not ranked:
        verdict, start = CANNOT_TELL, next(iter(found))
        why = "no question is graded; the figures are reported only"
    else:
        _, finding, start = ranked[0]
        verdict, why = str(finding.verdict), f"{finding.instrument}: {finding.why}"
    if verdict == SAME and fewest < LEAST_ANSWERED * asked:
        verdict, why = CANNOT_TELL, f"a start of the baseline answered only {fewest:,} of {asked:,} questions; {why}"
    losses = [
        finding.smallest_loss
        for findings in found.values()
        for finding in findings
        if finding.instrument == "tasks" and finding.smallest_loss is not None
    ]
    smallest = max(losses, default=None)
    if verdict == CANNOT_TELL and smallest is not None:
        why += f"; a loss of {smallest:.1f} points or more would have been seen"
    return AnswersVerdict(verdict, why, smallest, found[start])
