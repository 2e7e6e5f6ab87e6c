"""Two starts' answers to the same questions, side by side, and what an instrument finds in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from pydantic import Field

from servelab.answers.question import Answer
from servelab.core.files import FiniteOrNull, JsonPart
from servelab.core.run_spec import Strict

SAME = "same"
CHANGES = "changes answers"
CANNOT_TELL = "cannot tell"
NOT_MEASURED = "not measured"


class Allowed(Strict):
    """Losses that a candidate may have against the baseline. A loss is a difference of the same questions' answers."""

    task_loss_points: float = Field(
        2.0, ge=0, lt=100, description="Right answers that may be lost, in percent of the questions."
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


class InstrumentFinding(JsonPart):
    """The findings of one instrument in one comparison."""

    instrument: str = Field(description="Name of the instrument.")
    verdict: str | None = Field(description="`same`, `changes answers`, `cannot tell`; null if it only reports.")
    why: str = Field(description="Reason for the verdict, with the figures.")
    smallest_loss: FiniteOrNull = Field(
        None, description="Smallest loss that would have been seen, in points; null if there is none."
    )
    figures: list[Figure] = Field([], description="Its figures.")


@dataclass(frozen=True)
class Comparison:
    """The input of an instrument: the questions, and the answers of both sides that are there."""

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


class PairedShare(NamedTuple):
    """A share or a difference of shares, with its interval."""

    value: float
    low: float
    high: float

    def figure(self, instrument: str, name: str, questions: int, unit: str = "percent", **more: float | None) -> Figure:
        """The share as an instrument's figure, in percent."""
        value, low, high = (100 * each for each in self)
        return Figure(
            instrument=instrument, name=name, unit=unit, value=value, low=low, high=high, questions=questions, **more
        )


def share_interval(count: int, total: int, confidence: float = 0.95) -> PairedShare:
    """A share with Wilson's score interval (Wilson 1927, J. Am. Stat. Assoc. 22, 209), from 0 to 1."""
    square = _quantile(confidence) ** 2
    middle = (count + square / 2) / (total + square)
    half = math.sqrt(square * (count * (total - count) / total + square / 4)) / (total + square)
    # At the ends the formula gives 0 and 1, up to rounding.
    low = 0.0 if count == 0 else max(0.0, middle - half)
    high = 1.0 if count == total else min(1.0, middle + half)
    return PairedShare(count / total, low, high)


def mcnemar_p(lost: int, gained: int) -> float:
    """Two-sided p-value that as many questions are lost as gained: McNemar's exact (binomial) test."""
    changed = lost + gained
    if changed == 0:
        return 1.0
    ways = sum(math.comb(changed, number) for number in range(min(lost, gained) + 1))
    return min(1.0, ways / (1 << (changed - 1)))


def paired_difference(lost: int, gained: int, total: int, confidence: float = 0.95) -> PairedShare:
    """Share of questions lost less share gained, from −1 to 1: Tango's score interval for paired proportions.

    `lost` and `gained` are the questions that only one side has right. Tango 1998, Statistics in Medicine 17, 891. Its
    interval keeps its error also where few or no questions changed.
    """
    value, z = (lost - gained) / total, _quantile(confidence)

    def score(difference: float) -> float:
        """How many standard errors the data are above a true difference; it falls from 1 to −1."""
        # The likeliest share gained if the true difference is this one: root of a quadratic equation.
        a = 2 * total
        b = (2 * total - lost + gained) * difference - lost - gained
        c = -gained * difference * (1 - difference)
        gained_share = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
        variance = total * (2 * gained_share + difference * (1 - difference))
        distance = lost - gained - total * difference
        if variance <= 0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / math.sqrt(variance)

    low = -1.0 if value <= -1 else _root(lambda at: score(at) - z, -1.0, value)
    high = 1.0 if value >= 1 else _root(lambda at: score(at) + z, value, 1.0)
    return PairedShare(value, low, high)


def _root(falls: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is 0, by halving."""
    for _ in range(60):
        middle = (low + high) / 2
        if falls(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)
