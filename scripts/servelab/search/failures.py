"""How likely a combination of options fails, given those that failed and those that worked.

A failure has a cause: a choice or any change of an option, or two or three such together; for an option with ordered
values also all values from one on, or up to one; or several such options exceed a limit together, as of memory. Each
possible cause is real with a small probability of its own, independently of the others (a "noisy or"). A combination
that works refutes every cause that it has; one that fails has at least one that is real. The probabilities given all of
this are exact for up to `_TOGETHER` failures, by inclusion and exclusion over them; the failures before these only
change the probability of each cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product, zip_longest

import numpy as np
from numpy.typing import NDArray

from servelab.search.likeness import Floats, Levels, Scales

_PRIOR = (0.1, 0.02, 0.003)
"""Probability that one choice, two or three choices together are a cause, before anything is measured."""
_BASELINE, _RANGE = 0.2, 0.5
"""How likely a cause is if it has a baseline's choice, and if it has several choices of an option, against others."""
_LIMIT, _DRAWN = 0.5, 1000
"""Probability that there is a limit of several options together, and how many are drawn."""
_WEIGHT_SD, _OPPOSITE, _ABSENT, _QUANTILES, _UNORDERED_STEPS = 0.5, 0.15, 0.25, (0.1, 0.9), 1.0
"""How the weights of its options vary, as a logarithm; how often one counts against the limit, or not at all; the share
of all combinations that are within a limit; and how choices without an order vary, in steps."""
_TOGETHER = 6
_BLOCK = 512
"""Combinations that are computed at once."""

Bools = NDArray[np.bool_]


def probability_of_failure(levels: Levels, worked: Levels, failed: Levels, scales: Scales = ()) -> Floats:
    """Probability that each combination of `levels` fails, (combinations,); 0 as long as none `failed`."""
    if not len(failed):
        return np.zeros(len(levels))
    causes = _Causes(levels, worked, failed, scales)
    blocks = [causes.failing(levels[at : at + _BLOCK]) for at in range(0, len(levels), _BLOCK)]
    return np.concatenate([*blocks, np.zeros(0)])


class _Causes:
    """Every cause that no combination in `worked` refutes."""

    def __init__(self, levels: Levels, worked: Levels, failed: Levels, scales: Scales) -> None:
        counts = np.concatenate([levels, worked, failed]).max(0) + 1
        self._limits = _Limits(levels, counts.tolist(), scales)
        self._sets = [
            (option, each)
            for option, count in enumerate(counts)
            for each in _sets(count, scales[option] if scales else None)
        ]
        works, fails = self._in_sets(worked), self._in_sets(failed)
        self._parts = []
        for size in range(1, len(_PRIOR) + 1):
            of = range(len(self._sets)) if size < len(_PRIOR) else np.flatnonzero(fails.any(1)).tolist()
            parts = [each for each in combinations(of, size) if len({self._sets[at][0] for at in each}) == size]
            listed = np.array(parts, dtype=np.int64).reshape(-1, size)
            is_open = ~_any_has(works[listed])
            if size == len(_PRIOR):
                is_open &= _any_has(fails[listed])
            self._parts.append(listed[is_open])
        self._limits.keep(worked, failed)
        likely = np.array([_share(each) for _, each in self._sets])
        found = [prior * likely[each].min(1) for each, prior in zip(self._parts, _PRIOR, strict=True)]
        self._log_none: Floats = np.log1p(-np.concatenate([*found, self._limits.priors]))
        """(causes,): logarithm of the probability that each is not real."""
        explains = _needed(self._has(failed))
        while len(explains) > _TOGETHER:
            some, explains = explains[:_TOGETHER], explains[_TOGETHER:]
            real = _working(self._log_none, some, np.eye(len(self._log_none), dtype=bool))
            self._log_none = np.log(np.clip(real, 1e-9, 1))
        self._explains = explains

    def failing(self, levels: Levels) -> Floats:
        """Probability that each combination fails."""
        return 1 - _working(self._log_none, self._explains, self._has(levels).T)

    def _in_sets(self, levels: Levels) -> Bools:
        """(sets, combinations)"""
        return np.array([chosen[levels[:, option]] for option, chosen in self._sets]).reshape(
            len(self._sets), len(levels)
        )

    def _has(self, levels: Levels) -> Bools:
        """(causes, combinations): which combinations have each cause."""
        in_sets = self._in_sets(levels)
        return np.concatenate([*(in_sets[each].all(1) for each in self._parts), self._limits.beyond(levels)])


class _Limits:
    """Limits of a sum over several options, as of memory. They are drawn, and each is a possible cause.

    An option with ordered values counts by the steps of its scale, in order or by their logarithms, times a weight. A
    limit is drawn among `all_levels`.
    """

    def __init__(self, all_levels: Levels, counts: Sequence[int], scales: Scales) -> None:
        draw, number = np.random.default_rng(0), _DRAWN if any(scale is not None for scale in scales) else 0
        weights = np.exp(_WEIGHT_SD * draw.standard_normal((number, len(counts))))
        weights *= np.where(draw.random(weights.shape) < _OPPOSITE, -1, 1) * (draw.random(weights.shape) > _ABSENT)
        weights[(weights != 0).sum(1) < 2] = 0
        self._tables = [
            weights[:, [at]] * _steps(scale, count, number, draw)
            for at, (count, scale) in enumerate(zip_longest(counts, scales))
        ]
        needed = np.sort(self._needed(all_levels, number), axis=1)
        at = (draw.uniform(*_QUANTILES, number) * (len(all_levels) - 1)).astype(int)
        self._most = (needed[np.arange(number), at] + needed[np.arange(number), at + 1]) / 2
        self._kept = np.flatnonzero((weights != 0).any(1))
        self.priors: Floats = np.zeros(0)

    def keep(self, worked: Levels, failed: Levels) -> None:
        """Drops the limits that something in `worked` exceeds, and those that explain nothing in `failed`."""
        number = max(1, len(self._kept))
        self._kept = self._kept[~self.beyond(worked).any(1)]
        self._kept = self._kept[self.beyond(failed).any(1)]
        self.priors = np.full(len(self._kept), _LIMIT / number)

    def beyond(self, levels: Levels) -> Bools:
        """(limits, combinations)"""
        found: Bools = self._needed(levels, len(self._most))[self._kept] > self._most[self._kept, None]
        return found

    def _needed(self, levels: Levels, number: int) -> Floats:
        found = np.zeros((number, len(levels)))
        for table, each in zip(self._tables, levels.T, strict=True):
            found += table[:, each]
        return found


def _steps(scale: Floats | None, count: int, number: int, draw: np.random.Generator) -> Floats:
    """How many steps each choice is from the least, (number, choices): in half in order, else by its logarithm.

    A value that is not known is taken for the least in half, and else for any. Choices without an order are anywhere.
    """
    if scale is None:
        return draw.normal(0, _UNORDERED_STEPS, (number, count))
    known = np.isfinite(scale)
    values = np.log(scale)
    least, greatest = values[known].min(), values[known].max()
    step = (greatest - least) / max(1, known.sum() - 1) or 1.0
    found = np.repeat(values[None], number, 0)
    guess = draw.uniform(least - step, greatest + step, number)
    found[:, ~known] = np.where(np.arange(number) % 4 < 2, least - step, guess)[:, None]
    steps = (found - found.min(1, keepdims=True)) / step
    in_order = found.argsort(1).argsort(1)
    return np.where(np.arange(number)[:, None] % 2, steps, in_order)


def _any_has(parts: Bools) -> Bools:
    """Of each cause, (causes, parts, combinations): whether any combination has all its parts."""
    found: Bools = np.any(np.all(parts, axis=1), axis=1)
    return found


def _sets(count: int, scale: Floats | None) -> list[Bools]:
    """The sets of an option's choices that may be a cause: each, all but each; on a `scale` those from or to one."""
    found = [*np.eye(count, dtype=bool), *~np.eye(count, dtype=bool)]
    if scale is not None:
        for value in scale[np.isfinite(scale)]:
            found += [scale >= value, scale <= value]
    unlike = {each.tobytes(): each for each in found if not each.all()}
    return list(unlike.values())


def _share(chosen: Bools) -> float:
    """How likely a set of choices is part of a cause, against a single choice that is a change from the baseline."""
    if chosen[0]:
        return _BASELINE
    return 1.0 if chosen.sum() == 1 else _RANGE


def _needed(explains: Bools) -> Bools:
    """(failures, causes): the failures that are not explained by every cause of another one, the clearest first."""
    failures = sorted(np.unique(explains.T[explains.any(0)], axis=0), key=lambda each: int(each.sum()))
    kept: list[Bools] = []
    for each in failures:
        if not any((other <= each).all() for other in kept):
            kept.append(each)
    # the clearest are taken last: they are the ones that are computed exactly
    return np.array(kept[::-1], dtype=bool).reshape(len(kept), len(explains))


def _working(log_none: Floats, explains: Bools, has: Bools) -> Floats:
    """Probability that each combination works if each failure has a real cause; `has` is (combinations, causes).

    P(no cause of the combination is real, all failures are explained) / P(all failures are explained), each by
    Σ (−1)^|S| P(no cause of the failures S is real, nor of the combination) over the sets S of failures.
    """
    chosen = np.array(list(product((False, True), repeat=len(explains))), dtype=bool).reshape(2 ** len(explains), -1)
    some = chosen.astype(float) @ explains > 0
    signs = (-1.0) ** chosen.sum(1) * np.exp(some @ log_none)
    left = np.where(some, 0.0, log_none)
    with_it = signs @ np.exp(left @ has.T)
    found: Floats = np.clip(with_it / max(signs.sum(), 1e-12), 0, 1)
    return found
