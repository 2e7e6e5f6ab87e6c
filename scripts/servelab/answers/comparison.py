"""Two starts' answers to the same questions, side by side, and what an instrument finds in them.

A loss is a difference of the same questions' answers, in points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from servelab.answers.question import Answer

SAME = "same"
CHANGES = "changes answers"
CANNOT_TELL = "cannot tell"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class InstrumentFinding:
    """The findings of one instrument in one comparison."""

    instrument: str
    verdict: str | None
    """`same`, `changes answers`, `cannot tell`; None if nothing is wrong, and that does not show the same."""
    why: str
    """Reason for the verdict, with the figures."""
    smallest_loss: float | None = None
    """Smallest loss that would have been seen, in points; None if there is none."""


@dataclass(frozen=True)
class Comparison:
    """The input of an instrument: the questions, and the answers of both sides that are there."""

    questions: Sequence[str]
    """Ids of the questions that the baseline's start answered, sorted."""
    baseline: Mapping[str, Answer]
    """Has an answer to each of `questions`."""
    candidate: Mapping[str, Answer]
    """The candidate's; a question that is not in it is missing, which counts as a loss."""
    allowed_points: float
    """Right answers that may be lost, in percent of the questions."""
    confidence: float = 0.95
    """Of the interval that decides: 0.95 for one comparison, and more if several share the error of 5 %."""


class PairedShare(NamedTuple):
    """A difference of shares, with its interval."""

    value: float
    low: float
    high: float


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
    value, z = (lost - gained) / total, NormalDist().inv_cdf((1 + confidence) / 2)

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
