"""How alike two choices of an option are, for the model of the search (`servelab.search.surrogate`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Levels = NDArray[np.int64]
"""(combinations, options): the number of each option's choice in each combination; 0 is the baseline's."""
Scales = Sequence[Floats | None]
"""The values of each option's choices, nan where unknown; None for an option without an order."""
Tables = list[tuple[Floats, Levels]]
"""For each option how alike two choices may be, (2, values), and which of these each two choices are."""

_REACH = (1.5, 4.0)
"""Steps of a scale over which the effects of its values are alike: of neighbours, and of distant values."""
_KINDS = 6
"""Kinds of processes."""


def alike(count: int, scale: Floats | None) -> Floats:
    """How alike two choices of an option are, (kinds, 2, choices, choices); the kinds are those of processes.

    First in their effect: between changes from the baseline 1 where equal, else 0; between choices that are all alike
    so that the mean over them is 0. Then in themselves: 1 where equal, and less where not.
    """
    same = np.eye(count)
    changes = same.copy()
    changes[0, 0] = 0
    found = [(changes, same), (_centred(same), same)]
    if scale is None:
        return np.array([*found, *found, *found])
    for reach, from_least in zip(_REACH, (False, True), strict=True):
        near = _near(scale, reach, from_least)
        to_baseline = near - near[[0]] - near[:, [0]] + near[0, 0]
        found += [(to_baseline / np.diag(to_baseline)[1:].mean(), near), (_centred(near), near)]
    return np.array(found)


def _centred(near: Floats) -> Floats:
    """The same about the mean of all choices."""
    about = near - near.mean(0) - near.mean(1)[:, None] + near.mean()
    found: Floats = about / np.diag(about).mean()
    return found


def _near(scale: Floats, reach: float, from_least: bool) -> Floats:
    """How alike two values of a scale are, by the distance of their logarithms in typical steps.

    An unknown value is unlike all others, or taken to be a step from the least.
    """
    logs = np.log(scale)
    steps = np.diff(np.sort(logs[np.isfinite(logs)]))
    typical = np.median(steps[steps > 0]) if (steps > 0).any() else 1.0
    if from_least:
        logs = np.where(np.isfinite(logs), logs, np.nanmin(logs) - typical)
    near = np.exp(-0.5 * ((logs[:, None] - logs) / typical / reach) ** 2)
    return np.where(np.isfinite(near), near, np.eye(len(scale)))


def tables(likeness: Sequence[Floats]) -> list[Tables]:
    """The values of `alike` for each kind and option, (2, values), and which of them each two choices have."""
    found = []
    for kind in range(_KINDS):
        options = []
        for each in likeness:
            values, at = np.unique(each[kind].reshape(2, -1), axis=1, return_inverse=True)
            options.append((values, at.reshape(each.shape[2:])))
        found.append(options)
    return found
