"""How likely a combination of options fails, from those that failed: it learns which choices to avoid."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from servelab.search.surrogate import Floats, Levels

_PRIOR = {1: 1.0, 2: 0.3, 3: 0.05}
"""Number of choices together → how likely they are a cause, before anything is measured; relative to a single one."""
_PASSES = 5
_UNTRIED = 0.2
"""Probability, where something failed, that a choice fails which no working combination has: it keeps the next
combinations from changing all at once, which any cause makes fail."""

Choices = tuple[tuple[int, int], ...]
"""Options and their choices."""


def probability_of_failure(levels: Levels, worked: Levels, failed: Levels) -> Floats:
    """Probability that each combination of `levels` fails, (combinations,); 0 as long as none `failed`.

    A failure has a cause: one choice, or two or three together, that no combination in `worked` has. Each failure is
    shared out among its possible causes, in proportion to how likely these are; what explains several failures becomes
    likelier, what explains none of them is none. The shares are found by a few passes of expectation maximisation.
    Besides, each choice that no combination in `worked` has may fail.
    """
    causes = _possible_causes(worked, failed)
    if not causes:
        return np.zeros(len(levels))
    prior = np.array([_PRIOR[len(cause)] for cause in causes])
    explains = np.array([_has(failed, cause) for cause in causes], dtype=float)
    weights = prior
    for _ in range(_PASSES):
        weights = prior * _shares(explains, weights).sum(1)
    is_cause = 1 - (1 - _shares(explains, weights)).prod(1)
    untried = [~np.isin(levels[:, option], worked[:, option]) for option in range(levels.shape[1])]
    works: Floats = (1 - _UNTRIED) ** np.sum(untried, axis=0, dtype=float)
    for cause, likely in zip(causes, is_cause, strict=True):
        works[_has(levels, cause)] *= 1 - likely
    return 1 - works


def _possible_causes(worked: Levels, failed: Levels) -> list[Choices]:
    """Choices, alone or two or three together, of combinations that failed and of none that worked."""
    found: dict[Choices, None] = {}
    for combination in failed:
        chosen = list(enumerate(int(level) for level in combination))
        for size in _PRIOR:
            for cause in combinations(chosen, size):
                if not _has(worked, cause).any():
                    found[cause] = None
    return list(found)


def _shares(explains: Floats, weights: Floats) -> Floats:
    """(causes, failures): each failure shared out among the causes that explain it, by their weights."""
    shares = explains * weights[:, None]
    shares /= np.maximum(shares.sum(0), 1e-12)
    return shares


def _has(levels: Levels, cause: Choices) -> np.ndarray:
    """Which combinations have all these choices."""
    options, chosen = (list(each) for each in zip(*cause, strict=True))
    found: np.ndarray = (levels[:, options] == np.array(chosen)).all(1)
    return found
