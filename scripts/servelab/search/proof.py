"""The proof of a search's winner: pairs of fresh starts of baseline and winner, and the interval of their change.

One pair is one start of each, next to each other on the same devices; the order alternates. What both of a pair share,
a slow hour or a busy neighbour, cancels in the pair's ratio.

How many pairs (`pairs_needed`) is decided after the first three, from data that say nothing about the change: the
noise that the search saw, and how the *level* of the pairs (the mean of both sides) scatters. If starts are equally
noisy on both sides, a pair's level and its ratio are independent, so the interval covers as if the number had been
fixed beforehand. It may use all pairs, and no gain is favoured by when measuring stops.

The rules it was simulated beside, all to reach a third of the promised gain, at a true gain of 5 % and a scatter of
starts of 2.3 %, up to 8 pairs (pairs on average, share of gains proved; 40,000 proofs each): this one 7.7, 89 %;
Stein's two-stage rule after 3, 4 or 5 pairs 7.2, 59 %; 7.1, 78 %; 7.2, 87 %; group-sequential with looks at 3, 5 and 8
pairs 6.6, 89 %. Stein's interval needs normal noise: if 12 % of the starts are 15 % slower it covers 90 % after 3
pairs, 92 % after 4. The group-sequential rule finds up to 0.5 points too much, because lucky data stop early. A gain of
30 % takes 3.0 pairs here, and 3.3, 4.0 and 5.0 by Stein's rule after 3, 4 and 5.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from servelab.core.files import FiniteOrNull, JsonPart
from servelab.metrics.statistics import Interval, change_of_pairs, t_quantile
from servelab.search.decide import PRIOR, StartNoise, sum_of_squares
from servelab.search.decision import CANNOT_TELL

BASELINE, WINNER = "baseline", "winner"
LEAST_ASKED_PERCENT = 2.0
"""No proof aims at a narrower interval than ± this, unless the study does."""
SHARE_OF_PROMISE = 1 / 2
"""The interval's half width that a proof aims at, as a share of the promised gain."""


class ProofPair(NamedTuple):
    """The values of two starts next to each other, for one metric on one workload; same unit, above 0."""

    baseline: float
    winner: float

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of winner / baseline. Raises `ValueError` on a value that is not above 0."""
        baseline, winner = self._logs()
        return winner - baseline

    @property
    def level(self) -> float:
        """Mean of the logarithms of both values. Raises `ValueError` on a value that is not above 0."""
        return statistics.fmean(self._logs())

    def _logs(self) -> tuple[float, float]:
        if not all(0 < value < math.inf for value in self):
            raise ValueError(f"both values of a pair must be above 0: {self}")
        return math.log(self.baseline), math.log(self.winner)


def pair_order(number: int) -> tuple[str, str]:
    """Which side of pair `number` (from 0) is started first and second: baseline first in even ones, last in odd."""
    return (BASELINE, WINNER) if number % 2 == 0 else (WINNER, BASELINE)


def asked_half_width_percent(promised_percent: float, within_percent: float | None = None) -> float:
    """The half width of the interval to aim at, in percent: the study's, or half of the promised change, 2 at least.

    `promised_percent` is the change that the search found, of either sign.
    """
    if within_percent is not None:
        return within_percent
    return max(LEAST_ASKED_PERCENT, SHARE_OF_PROMISE * abs(promised_percent))


def pairs_needed(first: Sequence[ProofPair], asked_percent: float, most: int, noise: StartNoise = PRIOR) -> int:
    """How many pairs to measure in all, those of the `first` batch included; never fewer than these.

    The smallest n up to `most` with t(0.975, n − 1) · √2 · s / √n within the asked half width, else `most`. s is the
    standard deviation of a start's log value: `noise` (the search's, from other starts) updated by the scatter of the
    levels of the `first` pairs, whose variance is s² / 2 if both sides are equally noisy. The levels also contain what
    a pair's ratio is free of (a drift, a neighbour), which can only ask for more pairs. `first` is of the workload
    and the metric that decide; the other workloads get the same number.
    """
    squares = 2 * sum_of_squares([pair.level for pair in first])
    sd = noise.updated(squares, len(first) - 1).sd_percent / 100
    asked = math.log1p(asked_percent / 100)
    fits = (n for n in range(2, most) if t_quantile(0.975, n - 1) * sd * math.sqrt(2 / n) <= asked)
    return max(len(first), next(fits, most))


def proved_change(pairs: Sequence[ProofPair]) -> Interval:
    """Change of the winner against the baseline in percent, with its 95 % interval: see `change_of_pairs`.

    Raises `ValueError` on no pairs.
    """
    return change_of_pairs([pair.log_ratio for pair in pairs])


def half_width_percent(low: float, high: float) -> float:
    """Half the width of a change's interval: the smallest change that would have excluded zero with this noise.

    `low` and `high` are in percent; halved between logarithms: 100 · (√((1 + high / 100) / (1 + low / 100)) − 1).
    """
    return _percent((math.log1p(high / 100) - math.log1p(low / 100)) / 2)


def _percent(log_change: float) -> float:
    return 100 * math.expm1(log_change)


BETTER = "better"
WORSE = "worse"
SAME = "same"
FAILED = "failed"
DISTURBED = "disturbed"
VERDICTS = (BETTER, WORSE, SAME, CANNOT_TELL, FAILED, DISTURBED)


class ProofVerdict(JsonPart):
    """Result of a proof for one metric on one workload; changes are the winner against the baseline, in percent."""

    verdict: str = Field(
        description="`better`, `worse`, `same`, `cannot tell`, `failed` or `disturbed`; docs/search.md explains them."
    )
    why: str = Field(description="Reason for the verdict, with what the search promised.")
    pairs: int = Field(description="Pairs of starts that were compared.")
    promised_change_percent: float | None = Field(
        description="Change that the search measured on single starts; null if it has none. It is no claim."
    )
    change_percent: float | None = Field(description="Change that the pairs found; null if there is none.")
    change_ci95_low_percent: FiniteOrNull = Field(description="Lower end of its 95 % interval; null below two pairs.")
    change_ci95_high_percent: FiniteOrNull = Field(description="Upper end of it.")
    smallest_change_percent: FiniteOrNull = Field(
        description="Smallest change that could have been seen: half the width of the interval; null without one."
    )
    unequal_places: str | None = Field(
        None, description="A warning: how the places of the runs compared differ; null if they do not (cluster.md)."
    )

    @property
    def holds(self) -> bool:
        """Whether the winner may be recommended; otherwise the baseline is kept."""
        return self.verdict == BETTER


def judge_proof(
    pairs: Sequence[ProofPair],
    *,
    margin_percent: float,
    higher_is_better: bool,
    promised_percent: float | None = None,
    failed: str | None = None,
    disturbed: str | None = None,
    of: str = "fresh starts",
) -> ProofVerdict:
    """The verdict on the winner, from the `pairs` whose sides are both sound; `of` says of what they are.

    `failed` says which side failed and how, `disturbed` what disturbed pairs also when they were measured again; None
    if neither happened. A failure weighs more. Both are verdicts of their own, and the figures of the sound pairs are
    still given. Without either:

    - `better`: the interval excludes zero and the gain exceeds the margin.
    - `worse`: the interval excludes zero and the loss exceeds the margin.
    - `same`: the interval is within ± margin.
    - `cannot tell`: everything else.

    Raises `ValueError` on a pair with a value that is not above 0.
    """
    change = proved_change(pairs) if pairs else None
    if failed is not None:
        verdict, reason = FAILED, f"failed in the proof: {failed}"
    elif disturbed is not None:
        verdict, reason = DISTURBED, f"the proof was disturbed, also when it was measured again: {disturbed}"
    else:
        verdict, reason = _compare(change, margin_percent, higher_is_better)
    low, high = (None, None) if change is None else change[1:]
    return ProofVerdict(
        verdict=verdict,
        why=_side_by_side(reason, promised_percent, change, f"{_counted(len(pairs))} of {of}"),
        pairs=len(pairs),
        promised_change_percent=promised_percent,
        change_percent=None if change is None else change.value,
        change_ci95_low_percent=low,
        change_ci95_high_percent=high,
        smallest_change_percent=None if low is None or high is None else half_width_percent(low, high),
    )


def _compare(change: Interval | None, margin: float, higher_is_better: bool) -> tuple[str, str]:
    if change is None or change.low is None or change.high is None:
        return CANNOT_TELL, "fewer than two pairs are sound"
    seen = f"a change of {half_width_percent(change.low, change.high):.1f} % or more could have been seen"
    if -margin <= change.low and change.high <= margin:
        return SAME, f"the difference is within the margin of {margin:g} %"
    if change.low <= 0 <= change.high:
        return CANNOT_TELL, f"the interval includes no change; {seen}"
    if abs(change.value) <= margin:
        return CANNOT_TELL, f"the change may be smaller or larger than the margin of {margin:g} %; {seen}"
    return (
        (BETTER, "the gain holds")
        if (change.value > 0) == higher_is_better
        else (WORSE, "the winner of the search is worse than the baseline")
    )


def _side_by_side(reason: str, promised: float | None, change: Interval | None, pairs: str) -> str:
    parts = [] if promised is None else [f"the search promised {promised:+.1f} %"]
    if change is not None:
        interval = "" if change.low is None else f" (95 % interval {change.low:+.1f} to {change.high:+.1f} %)"
        parts.append(f"{pairs} found {change.value:+.1f} %{interval}")
    return f"{reason}: {', '.join(parts)}" if parts else reason


def _counted(pairs: int) -> str:
    return "1 pair" if pairs == 1 else f"{pairs} pairs"
