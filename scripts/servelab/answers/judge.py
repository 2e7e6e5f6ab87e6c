"""The verdict on a candidate's answers: every start of the candidate against every start of the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from servelab.answers.comparison import CANNOT_TELL, CHANGES, NOT_MEASURED, SAME, Allowed, Comparison, Figure, Finding
from servelab.answers.instruments import INSTRUMENTS
from servelab.answers.instruments.agreement import difference_share, first_difference
from servelab.answers.question import Answer, by_question
from servelab.core.files import FiniteOrNull, JsonPart

ERROR = 0.05
"""Of all intervals that decide on one candidate, together."""
LEAST_ANSWERED = 0.95
"""Share of the questions that a baseline's start must have answered for a candidate to be called the same."""
SHOWN = 20
"""Differences that are listed."""

Starts = Mapping[str, Sequence[Answer]]
"""Answers by label of the server start."""


class Difference(JsonPart):
    """One question whose answers differ."""

    question_id: str = Field(description="The question.")
    start: str = Field(description="Server start of the candidate.")
    baseline_text: str = Field(description="The baseline's answer.")
    candidate_text: str | None = Field(description="The candidate's; null if it is missing.")
    share: float = Field(description="Edit distance as a share of the longer text; 1 if the answer is missing.")
    first_difference: int | None = Field(description="First character that differs, from 0; null if it is missing.")
    baseline_correct: bool | None = Field(description="Grade of the baseline's answer; null if it is not graded.")
    candidate_correct: bool | None = Field(description="Grade of the candidate's; null if it is missing or not graded.")


class AnswersVerdict(JsonPart):
    """What a candidate's answers are compared with the baseline's."""

    verdict: str = Field(
        description="`same`, `changes answers`, `cannot tell` or `not measured`; docs/answers.md explains them."
    )
    why: str = Field(description="Reason for the verdict, with the figures that decided.")
    questions: int = Field(0, description="Questions that the baseline was asked.")
    baseline_starts: list[str] = Field([], description="Server starts of the baseline; two or more give the floor.")
    candidate_starts: list[str] = Field([], description="Server starts of the candidate.")
    smallest_loss_points: FiniteOrNull = Field(
        None, description="Smallest loss of right answers that would have been seen, in points; null if none is graded."
    )
    figures: list[Figure] = Field([], description="Figures of the start that decided, against the first baseline's.")
    findings: list[Finding] = Field([], description="What each instrument found in that start.")
    warnings: list[str] = Field([], description="Differences that were not expected.")
    differences: list[Difference] = Field([], description=f"The {SHOWN} questions whose answers differ most.")


def judge(baseline: Starts, candidate: Starts, allowed: Allowed, *, expect_same: bool = False) -> AnswersVerdict:
    """The verdict on a candidate from the answers of its starts and of the baseline's, each start's by its label.

    - `changes answers`: a start of the candidate loses more than is allowed, beyond noise, against every start of the
      baseline. All comparisons that decide share an error of 5 %.
    - `same`: every start of the candidate is within what is allowed, against every start of the baseline.
    - `cannot tell`: everything else, with the smallest loss that would have been seen.
    - `not measured`: one side has no start, or the baseline was asked nothing.

    A start without answers to the questions has lost them. `expect_same` is for changes that should leave greedy
    answers as they are: a difference beyond the floor gives a warning. `ServelabError` if a start answered a question
    twice.
    """
    answered = {start: by_question(answers, start) for start, answers in baseline.items()}
    given = {start: by_question(answers, start) for start, answers in candidate.items()}
    asked = {answer.question_id for answers in baseline.values() for answer in answers}
    verdict = AnswersVerdict(
        verdict=NOT_MEASURED,
        why="the baseline's answers were not measured",
        questions=len(asked),
        baseline_starts=list(baseline),
        candidate_starts=list(candidate),
    )
    if not asked:
        return verdict
    if not candidate:
        return verdict.model_copy(update={"why": "the candidate's answers were not measured"})
    others = {answer.question_id for answers in candidate.values() for answer in answers} - asked
    if others:
        why = f"the candidate was asked other questions than the baseline, such as {min(others)}"
        return verdict.model_copy(update={"verdict": CANNOT_TELL, "why": why})
    if not any(answered.values()):
        why = "the baseline answered none of the questions"
        return verdict.model_copy(update={"verdict": CANNOT_TELL, "why": why})
    deciding = max(1, len(given) * sum(instrument.judges(allowed) for instrument in INSTRUMENTS))
    confidence = 1 - ERROR / deciding
    found = {
        start: _against_all(answered, answers, allowed, confidence, expect_same) for start, answers in given.items()
    }
    return verdict.model_copy(update=_summary(found, answered, given, len(asked)))


def _against_all(
    baseline: Mapping[str, Mapping[str, Answer]],
    candidate: Mapping[str, Answer],
    allowed: Allowed,
    confidence: float,
    expect_same: bool,
) -> list[Finding]:
    """What each instrument finds in a start: the figures against the first baseline's, the verdict against all."""
    found: dict[str, list[Finding]] = {}
    starts = [start for start, answers in baseline.items() if answers]
    for number, start in enumerate(starts):
        comparison = Comparison(
            questions=sorted(baseline[start]),
            baseline=baseline[start],
            candidate=candidate,
            allowed=allowed,
            confidence=confidence,
            floor=baseline[starts[(number + 1) % len(starts)]] if len(starts) > 1 else None,
            expect_same=expect_same,
        )
        for instrument in INSTRUMENTS:
            finding = instrument.find(comparison)
            if finding is not None:
                found.setdefault(instrument.name, []).append(finding)
    return [_of_all(findings) for findings in found.values()]


def _of_all(findings: Sequence[Finding]) -> Finding:
    """One finding of those against each start of the baseline."""
    first, verdicts = findings[0], {finding.verdict for finding in findings}
    if len(verdicts) == 1:
        return first
    if verdicts == {CHANGES, None}:
        return first.model_copy(update={"verdict": None})
    why = f"the starts of the baseline differ among themselves; {first.why}"
    return first.model_copy(update={"verdict": CANNOT_TELL, "why": why})


def _summary(
    found: Mapping[str, Sequence[Finding]],
    answered: Mapping[str, Mapping[str, Answer]],
    given: Mapping[str, Mapping[str, Answer]],
    asked: int,
) -> dict[str, object]:
    ranked = [
        (rank, finding, start)
        for rank, verdict in enumerate((CHANGES, CANNOT_TELL, SAME))
        for start, findings in found.items()
        for finding in findings
        if finding.verdict == verdict
    ]
    fewest = min(len(answers) for answers in answered.values())
    if not ranked:
        verdict, start = CANNOT_TELL, next(iter(found))
        why = "no question is graded and no limit is set for agreement or distance; the figures are reported only"
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
    warnings = [f"{start}: {finding.warning}" for start in found for finding in found[start] if finding.warning]
    return {
        "verdict": verdict,
        "why": why,
        "smallest_loss_points": smallest,
        "figures": [figure for finding in found[start] for figure in finding.figures],
        "findings": list(found[start]),
        "warnings": warnings,
        "differences": _differences(next(filter(None, answered.values())), given),
    }


def _differences(baseline: Mapping[str, Answer], given: Mapping[str, Mapping[str, Answer]]) -> list[Difference]:
    """The questions that differ most from the first baseline's answers, each once, the largest difference first."""
    worst: dict[str, Difference] = {}
    for start, answers in given.items():
        for key, right in baseline.items():
            difference = _difference(right, answers.get(key), start)
            if difference is not None and (key not in worst or worst[key].share < difference.share):
                worst[key] = difference
    return sorted(worst.values(), key=lambda difference: (-difference.share, difference.question_id))[:SHOWN]


def _difference(baseline: Answer, candidate: Answer | None, start: str) -> Difference | None:
    if candidate is not None and candidate.text == baseline.text:
        return None
    return Difference(
        question_id=baseline.question_id,
        start=start,
        baseline_text=baseline.text,
        candidate_text=None if candidate is None else candidate.text,
        share=1.0 if candidate is None else difference_share(baseline.text, candidate.text),
        first_difference=None if candidate is None else first_difference(baseline.text, candidate.text),
        baseline_correct=baseline.correct,
        candidate_correct=None if candidate is None else candidate.correct,
    )
