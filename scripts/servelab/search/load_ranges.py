"""Which of two configurations is the better one from which load on, with the interval of each load where it changes.

At a measured load the two are told apart by the 95 % interval of their pairs (`change_of_pairs`). Between two measured
loads each pair's log ratio is taken to change evenly, and the same interval is asked on the way: the loads at which it
includes no change are the crossing's interval. Inverting a test this way is Fieller's method for the ratio of two
means: Fieller 1954, "Some problems in interval estimation", J. R. Stat. Soc. B 16, 175.

How the ratio goes from one measured load to the next is not known. So the interval begins where it does if the ratio
is even in 1 / load, and ends where it does if it is even in the load itself; the estimate takes the logarithm, which
is between the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from servelab.metrics.pairs import change_of_pairs
from servelab.search.proof import BASELINE, WINNER

_STEPS = 50
"""Parts of the way between two measured loads."""
_LEAST_PAIRS = 2

Best = tuple[str, ...]
BOTH: Best = (BASELINE, WINNER)
"""The two cannot be told apart."""


class Level(NamedTuple):
    """A measured load, above 0."""

    load: float
    log_ratios: Mapping[str, float]
    """Label of each pair → natural logarithm of winner / baseline; above 0 where the winner is better."""
    only: str | None = None
    """The side that can be used there, if the other one cannot."""

    def best(self) -> Best:
        """The better side here, or both."""
        return (self.only,) if self.only else _better(list(self.log_ratios.values()))[0]


class Range(NamedTuple):
    """Loads at which one side is the better one, or at which the two cannot be told apart."""

    best: Best
    first: float
    last: float


class Crossing(NamedTuple):
    """Where the better side changes: between `low` and `high`, the 95 % interval."""

    below: str
    above: str
    at: float | None
    """The estimate; None where a side has no figures, at one of the two measured loads around it."""
    low: float
    high: float


class _Cell(NamedTuple):
    """One load, measured or on the way between two. `low` ≤ `middle` ≤ `high`, equal where it was measured."""

    best: Best
    change: float | None
    low: float
    middle: float
    high: float
    is_measured: bool


def load_ranges(levels: Sequence[Level]) -> tuple[list[Range], list[Crossing]]:
    """The ranges, from the lowest measured load to the highest without gaps, and the crossings between them.

    `levels` are in ascending order. A load between two measured ones is decided only as part of a range with a measured
    load: otherwise it is one at which the two cannot be told apart. Raises `ValueError` on no levels.
    """
    if not levels:
        raise ValueError("no measured load")
    groups: list[list[_Cell]] = []
    for best, cells in groupby(_cells(levels), key=lambda cell: cell.best):
        group = list(cells)
        if best != BOTH and not any(cell.is_measured for cell in group):
            group = [cell._replace(best=BOTH) for cell in group]
        if groups and groups[-1][0].best == group[0].best:
            groups[-1] += group
        elif groups and BOTH not in (groups[-1][0].best, group[0].best):
            groups += [[], group]  # they change within one step
        else:
            groups.append(group)
    return _ranges(groups), _crossings(groups)


def _ranges(groups: Sequence[Sequence[_Cell]]) -> list[Range]:
    """The ranges; a group without cells is the step between its neighbours."""
    found: list[Range] = []
    for number, group in enumerate(groups):
        if group and group[0].best != BOTH:
            found.append(Range(group[0].best, group[0].high, group[-1].low))
            continue
        first = groups[number - 1][-1].low if number else group[0].middle
        last = groups[number + 1][0].high if number + 1 < len(groups) else group[-1].middle
        found.append(Range(BOTH, first, last))
    return found


def _crossings(groups: Sequence[Sequence[_Cell]]) -> list[Crossing]:
    found = []
    for before, group, after in zip(groups, groups[1:], groups[2:], strict=False):
        if not group or group[0].best == BOTH:
            (below,), (above,) = before[0].best, after[0].best
            if below != above:
                at = _estimate([before[-1], *group, after[0]])
                found.append(Crossing(below, above, at, before[-1].low, after[0].high))
    return found


def _estimate(cells: Sequence[_Cell]) -> float | None:
    """Where the change is 0; if it is so several times, the one in the middle."""
    if any(cell.change is None for cell in cells):
        return None
    found: list[float] = []
    for one, other in pairwise(cells):
        a, b = float(one.change or 0), float(other.change or 0)
        if (a < 0) != (b < 0):
            found.append(one.middle * (other.middle / one.middle) ** (a / (a - b)))
    return found[len(found) // 2]


def _cells(levels: Sequence[Level]) -> Iterator[_Cell]:
    for level, after in pairwise(levels):
        yield _measured(level)
        labels = [] if level.only or after.only else [label for label in level.log_ratios if label in after.log_ratios]
        if len(labels) >= _LEAST_PAIRS:
            for step in range(1, _STEPS):
                yield _between(level, after, labels, step / _STEPS)
        elif level.best() != after.best() or level.best() == BOTH:
            yield _Cell(BOTH, None, level.load, math.sqrt(level.load * after.load), after.load, is_measured=False)
    yield _measured(levels[-1])


def _measured(level: Level) -> _Cell:
    change = None if level.only else _better(list(level.log_ratios.values()))[1]
    return _Cell(level.best(), change, level.load, level.load, level.load, is_measured=True)


def _between(level: Level, after: Level, labels: Sequence[str], way: float) -> _Cell:
    a, b = level.load, after.load
    best, change = _better([(1 - way) * level.log_ratios[label] + way * after.log_ratios[label] for label in labels])
    low, high = 1 / ((1 - way) / a + way / b), (1 - way) * a + way * b
    return _Cell(best, change, low, a ** (1 - way) * b**way, high, is_measured=False)


def _better(log_ratios: Sequence[float]) -> tuple[Best, float | None]:
    """The side that the pairs' interval shows to be better, and their change; both below two pairs."""
    if len(log_ratios) < _LEAST_PAIRS:
        return BOTH, None
    change = change_of_pairs(log_ratios)
    assert change.low is not None and change.high is not None
    return ((WINNER,) if change.low > 0 else (BASELINE,) if change.high < 0 else BOTH), change.value
