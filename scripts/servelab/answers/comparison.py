"""Two starts' answers to the same questions, side by side, and what an instrument finds in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from servelab.answers.question import Answer
from servelab.core.files import FiniteOrNull, JsonPart
from servelab.core.run_spec import Strict

SAME = "same"
CHANGES = "changes answers"
CANNOT_TELL = "cannot tell"
NOT_MEASURED = "not measured"
VERDICTS = (SAME, CHANGES, CANNOT_TELL, NOT_MEASURED)


class Allowed(Strict):
    """What a candidate may lose against the baseline. A loss is a difference of the same questions' answers."""

    task_loss_points: float = Field(
        2.0, ge=0, lt=100, description="Right answers that may be lost, in percent of the questions."
    )
    least_agreement_percent: float | None = Field(
        None, gt=0, le=100, description="Least share of answers that equal the baseline's; null for no limit."
    )
    most_kl_nats: float | None = Field(
        None, gt=0, description="Largest mean KL divergence of the first token, in nats; null for no limit."
    )


class Figure(JsonPart):
    """One figure of one instrument: a candidate's start against one of the baseline's."""

    instrument: str = Field(description="Name of the instrument.")
    name: str = Field(description="Name of the figure.")
    unit: str = Field(description="Its unit.")
    value: FiniteOrNull = Field(description="The figure; null if there is none.")
    low: FiniteOrNull = Field(None, description="Lower end of its 95 % interval; null without one.")
    high: FiniteOrNull = Field(None, description="Upper end of it.")
    floor: FiniteOrNull = Field(
        None, description="The same figure for a second start of the baseline; null without a second start."
    )
    allowed: FiniteOrNull = Field(None, description="The limit that it is judged by; null if it is only reported.")
    questions: int = Field(description="Number of questions it was computed from.")


class Finding(JsonPart):
    """What one instrument found in one comparison."""

    instrument: str = Field(description="Name of the instrument.")
    verdict: str | None = Field(description="`same`, `changes answers`, `cannot tell`; null if it only reports.")
    why: str = Field(description="Reason for the verdict, with the figures.")
    smallest_loss: FiniteOrNull = Field(
        None, description="Smallest loss that would have been seen, in `loss_unit`; null if there is none."
    )
    loss_unit: str = Field("", description="Unit of the smallest loss.")
    figures: list[Figure] = Field([], description="Its figures.")
    warning: str | None = Field(None, description="A difference that was not expected; null if there is none.")


@dataclass(frozen=True)
class Comparison:
    """What an instrument gets: the questions, and the answers of both sides that are there."""

    questions: Sequence[str]
    """Ids of the questions that the baseline's start answered, sorted."""
    baseline: Mapping[str, Answer]
    """Has an answer to each of `questions`."""
    candidate: Mapping[str, Answer]
    """The candidate's; a question that is not in it is missing, which counts as a loss."""
    allowed: Allowed
    confidence: float = 0.95
    """Of the interval that decides: 0.95 for one comparison, and more if several share the error of 5 %."""
    floor: Mapping[str, Answer] | None = None
    """Answers of another start of the baseline; None if it had one start."""
    expect_same: bool = False
    """Whether the candidate should not change greedy answers; a difference beyond the floor is then a warning."""
