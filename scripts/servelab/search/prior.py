"""A prior of the search: predicted speeds of combinations, scaled to what is measured. It chooses no winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servelab.search.likeness import Floats, Levels
from servelab.study.configuration import Configuration, key_of
from servelab.study.predictions import Predictions

LEAST = 0.7
"""A combination that is predicted below this share of the best of its engine may be left out."""
_TRUSTED, _MEASURED, _MISFIT = 0.9, 6, 1.5
"""It is left out only if the measurements make the prior this likely, there are so many of them, and they differ from
it by no more than so many times its error."""


class Prior:
    """Predictions for the combinations of a space, as logarithms that are larger if better."""

    def __init__(
        self, predictions: Predictions, configurations: Sequence[Configuration], levels: Levels, sign: int
    ) -> None:
        found = [predictions.values.get(key_of(each), np.nan) for each in configurations]
        self.logs: Floats = sign * np.log(np.array(found))
        self.engines = np.array([each.engine for each in configurations])
        self.error, self._fits = predictions.error, True
        self._at = {row.tobytes(): number for number, row in enumerate(levels)}

    def scaled(self, positions: Sequence[int], values: Floats) -> Scaled:
        """With one scale for each engine that is measured, and one for all others."""
        away = values - self.logs[list(positions)]
        known = np.isfinite(away)
        overall = float(away[known].mean()) if known.any() else 0.0
        scale = np.full(len(self.logs), overall)
        for engine in np.unique(self.engines[list(positions)][known]):
            scale[self.engines == engine] = away[known & (self.engines[list(positions)] == engine)].mean()
        means = self.logs + scale
        missed = (values - means[list(positions)])[known]
        self._fits = bool(known.any() and np.sqrt((missed**2).mean()) <= _MISFIT * self.error)
        # what nothing predicts is expected to be as the others
        return Scaled(np.where(np.isfinite(means), means, float(values.mean())), self.error, self._at)

    def below_best(self) -> Floats:
        """The share of its engine's best prediction that each combination reaches; 1 without a prediction."""
        best = np.zeros(len(self.logs))
        for engine in np.unique(self.engines):
            own = self.engines == engine
            best[own] = np.nanmax(self.logs[own]) if np.isfinite(self.logs[own]).any() else np.nan
        share = np.exp(self.logs - best)
        return np.where(np.isfinite(share), share, 1.0)

    def left_out(self, trust: float, measured: int) -> NDArray[np.bool_]:
        """Combinations that are not measured, as likely as the prior is; never the first, which is the baseline."""
        is_trusted = self._fits and trust >= _TRUSTED and measured >= _MEASURED
        found: NDArray[np.bool_] = (self.below_best() < LEAST) & is_trusted
        found[0] = False
        return found


@dataclass(frozen=True)
class Scaled:
    """A prior's means for a model."""

    means: Floats
    error: float
    at: Mapping[bytes, int]

    def of(self, levels: Levels) -> Floats:
        """The mean of each combination."""
        return self.means[[self.at[row.tobytes()] for row in np.ascontiguousarray(levels)]]
