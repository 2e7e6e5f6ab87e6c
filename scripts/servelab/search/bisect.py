"""Finds the release that made serving slower: pairs of starts next to each other, over ever fewer releases.

Releases between a good and a bad one are compared with the good one, in pairs of fresh starts next to each other, as in
a proof (`servelab.search.proof`). One counts as slow if the whole 95 % interval of its change is beyond half of the
change between good and bad, and as fast if the whole interval is on the other side. So noise must move an interval by
half of the change before a step goes the wrong way. A release that cannot be measured, or that the pairs do not place,
is passed over, and is named if the guilty one may be it. The release that is found is compared with the one before it
on further starts, which chose nothing: only if they show it to be slower is it named.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from servelab.metrics.statistics import Interval
from servelab.search.proof import BASELINE, WINNER, Pair, pair_order, pairs_needed, proved_change

FIRST_PAIRS = 4
SHARE_OF_CHANGE = 1 / 4
"""The half width of a step's interval that is aimed at, as a share of the change between good and bad."""


MOST_BETWEEN = timedelta(minutes=30)
"""From the end of a pair's first start to the beginning of its second. Starts of an earlier day are no pair."""
MOST_LEFT_OUT = 20


class Skipped(Exception):  # noqa: N818 - a result, not an error
    """A release cannot be measured; the text says why."""


@dataclass(frozen=True)
class Start:
    """A server start of a release, measured."""

    value: float
    """The objective, above 0."""
    began: datetime
    ended: datetime


class Releases(Protocol):
    """Measures releases of an engine."""

    def prepare(self, version: str) -> None:
        """Makes what serving a release needs; `Skipped` if that is not possible."""

    def measure(self, version: str, number: int) -> Start:
        """Start `number` (from 0) of a release, measured now or before; `Skipped` if it cannot be served."""


@dataclass(frozen=True)
class Step:
    """Two releases, compared."""

    old: str
    new: str
    pairs: Sequence[Pair]
    change: Interval
    """Of the objective from old to new in percent, with its 95 % interval."""

    def is_worse(self, higher_is_better: bool) -> bool:
        """Whether the whole interval is on the bad side of no change."""
        return self.is_beyond(0.0, higher_is_better)

    def is_beyond(self, log_change: float, higher_is_better: bool) -> bool:
        """Whether the whole interval is on the bad side of a change, which is a natural logarithm."""
        low, high = self._logs()
        return high < log_change if higher_is_better else low > log_change

    def is_short_of(self, log_change: float, higher_is_better: bool) -> bool:
        """Whether the whole interval is on the good side of a change, which is a natural logarithm."""
        return self.is_beyond(log_change, not higher_is_better)

    def _logs(self) -> tuple[float, float]:
        assert self.change.low is not None and self.change.high is not None
        return math.log1p(self.change.low / 100), math.log1p(self.change.high / 100)


@dataclass
class Search:
    """What was found so far, and in the end."""

    releases: Sequence[str]
    """In order: the good one first, the bad one last."""
    steps: list[Step] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    """Why releases were not placed, by their version."""
    last_good: str | None = None
    suspects: list[str] = field(default_factory=list)
    """The releases that may have made it slower, in order; none if good and bad do not differ."""
    evidence: Step | None = None
    """The guilty release against the one before it."""

    @property
    def guilty(self) -> str | None:
        """The release that made it slower, if it is one, and shown."""
        return self.suspects[0] if len(self.suspects) == 1 and self.evidence is not None else None


def bisect(
    releases: Sequence[str],
    measured: Releases,
    *,
    higher_is_better: bool,
    within_percent: float,
    most_pairs: int,
    tell: Callable[[Step], None] = lambda step: None,
) -> Search:
    """Searches `releases`, sorted, at least two, for the one that made the objective worse.

    `within_percent` is the half width of the interval that the first comparison, of the first and the last, aims at.
    `tell` gets every step. `Skipped` if the first or the last cannot be measured.
    """
    found = Search(releases)
    starts: Counter[str] = Counter()

    def compare(old: str, new: str, asked_percent: float) -> Step:
        measured.prepare(new)
        pairs: list[Pair] = []
        needed = FIRST_PAIRS
        left_out = 0
        while len(pairs) < needed:
            version = {BASELINE: old, WINNER: new}
            pair = {}
            for side in pair_order(len(pairs)):
                pair[side] = measured.measure(version[side], starts[version[side]])
                starts[version[side]] += 1
            if _gap(pair[BASELINE], pair[WINNER]) > MOST_BETWEEN:
                left_out += 1
                if left_out > MOST_LEFT_OUT:
                    raise Skipped(f"{left_out} pairs were measured more than {MOST_BETWEEN} apart")
                continue
            pairs.append(Pair(pair[BASELINE].value, pair[WINNER].value))
            if len(pairs) == FIRST_PAIRS:
                needed = pairs_needed(pairs, asked_percent, most_pairs)
        step = Step(old, new, pairs, proved_change(pairs))
        found.steps.append(step)
        tell(step)
        return step

    good, bad = releases[0], releases[-1]
    measured.prepare(good)
    whole = compare(good, bad, within_percent)
    if not whole.is_worse(higher_is_better):
        return found
    change = math.log1p(whole.change.value / 100)
    asked_percent = 100 * math.expm1(SHARE_OF_CHANGE * abs(change))
    low, high = 0, len(releases) - 1
    while between := [at for at in range(low + 1, high) if releases[at] not in found.passed_over]:
        at = min(between, key=lambda each: abs(each - (low + high) / 2))
        try:
            step = compare(good, releases[at], asked_percent)
        except Skipped as why:
            found.passed_over[releases[at]] = str(why)
            continue
        if step.is_beyond(change / 2, higher_is_better):
            high = at
        elif step.is_short_of(change / 2, higher_is_better):
            low = at
        else:
            found.passed_over[releases[at]] = f"{len(step.pairs)} pairs cannot place it"
    found.last_good, found.suspects = releases[low], list(releases[low + 1 : high + 1])
    if len(found.suspects) == 1:
        step = compare(releases[low], releases[high], asked_percent)
        found.evidence = step if step.is_worse(higher_is_better) else None
    return found


def _gap(one: Start, other: Start) -> timedelta:
    first, second = sorted((one, other), key=lambda start: start.began)
    return second.began - first.ended
