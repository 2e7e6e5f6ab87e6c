"""The combinations of a study's options as numbers, and what is measured of them: between plans and the model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from servelab.core.errors import ConfigError
from servelab.core.identity import canonical_json
from servelab.search.decide import NOT_RUN, PRIOR, can_win, pooled_noise, start_values
from servelab.search.decision import Row, disturbed, rows_of
from servelab.search.failures import probability_of_failure
from servelab.search.likeness import Floats, Levels
from servelab.search.planning import obstacle_to
from servelab.search.prior import Prior
from servelab.search.surrogate import Measurements, Prediction, Surrogate, fitted
from servelab.study.configuration import Configuration, Variant, apply, baseline, changes_of, difference, key_of
from servelab.study.plan import Plan
from servelab.study.predictions import Predictions
from servelab.study.study import Stage, Study

MOST = 10_000
"""Largest number of combinations that is planned."""
_CLEARLY = 0.05
"""A value is clearly slower than the baseline if its logarithm is so much less."""

Chosen = tuple[tuple[str, str], ...]
"""Stage and label of each choice in a combination."""


class Combination(NamedTuple):
    """A combination of the stages' candidates."""

    variant: Variant
    """Its configuration, named by its candidates, with its changes on the baseline."""
    choices: tuple[int, ...]
    """For each stage 0 for none of its candidates, or the candidate's number from 1."""


def product(study: Study) -> list[Variant]:
    """All combinations of no candidate or one candidate per stage, without the baseline and without duplicates.

    A candidate is used only if its stage's `when` matches what the earlier stages chose. If several combinations give
    the same configuration, the first is kept. `ConfigError` above `MOST` combinations.
    """
    return [combination.variant for combination in combinations(study)[1:]]


def combinations(study: Study) -> list[Combination]:
    """`product` with the baseline first, and with what each combination chose in each stage."""
    most = prod(1 + len(stage.candidates) for stage in study.combined)
    start = baseline(study)
    found: dict[str, tuple[Chosen, Configuration]] = {key_of(start.configuration): ((), start.configuration)}
    for stage in study.combined:
        for chosen, configuration in list(found.values()):
            if obstacle_to(study, stage, configuration) is not None:
                continue
            for candidate in stage.candidates:
                after = apply(configuration, candidate)
                found.setdefault(key_of(after), ((*chosen, (stage.name, candidate.name)), after))
            if len(found) > MOST:
                raise ConfigError(
                    f"study {study.study}: search.strategy: {study.search.strategy} tries every combination; there "
                    f"are up to {most:,}, more than {MOST:,}; use `staged`, or fewer candidates"
                )
    all_of_them = list(found.values())
    short = [" + ".join(label for _, label in chosen) for chosen, _ in all_of_them]
    counts = Counter(short)
    numbers = [{each.name: number for number, each in enumerate(stage.candidates, 1)} for stage in study.combined]
    return [
        Combination(
            Variant(
                (name if counts[name] == 1 else " + ".join(f"{stage}: {label}" for stage, label in chosen))
                if chosen
                else start.candidate,
                configuration,
                difference(start.configuration, configuration),
            ),
            tuple(
                number[dict(chosen)[stage.name]] if stage.name in dict(chosen) else 0
                for stage, number in zip(study.combined, numbers, strict=True)
            ),
        )
        for name, (chosen, configuration) in zip(short, all_of_them, strict=True)
    ]


class Space:
    """Every combination of a study's stages; the baseline is the first."""

    def __init__(self, combined: Sequence[Combination], scales: Sequence[Floats | None]) -> None:
        self.variants = [combination.variant for combination in combined]
        self._positions = {key_of(variant.configuration): at for at, variant in enumerate(self.variants)}
        chosen = np.array([combination.choices for combination in combined])
        used = [np.unique(column, return_inverse=True) for column in chosen.T]
        columns = [numbers for choices, numbers in used if len(choices) > 1]
        self.scales = [
            None if scale is None else scale[choices]
            for scale, (choices, _) in zip(scales, used, strict=True)
            if len(choices) > 1
        ]
        """The values of the choices of each such option, nan where unknown; None for an option without an order."""
        self.counts = [len(choices) for choices, _ in used if len(choices) > 1]
        """Number of choices of each option that has several; nothing is one of them."""
        self.levels: Levels = np.array(columns, dtype=np.int64).reshape(len(columns), len(chosen)).T

    def __len__(self) -> int:
        return len(self.variants)

    @property
    def changes(self) -> int:
        """How many changes of the baseline say little of each other: of ordered values at most two."""
        of_options = zip(self.counts, self.scales, strict=True)
        return sum(count - 1 if scale is None else min(2, count - 1) for count, scale in of_options)

    def prior(self, study: Study, predictions: Predictions) -> Prior:
        """Predictions of its combinations for the study's objective."""
        return Prior(
            predictions, [variant.configuration for variant in self.variants], self.levels, study.objective.sign
        )

    def positions(self, plan: Plan) -> list[int]:
        """Position of each candidate of a plan."""
        return [self._positions[key_of(candidate.configuration)] for candidate in plan.candidates]


def space_of(study: Study) -> Space:
    """The combinations of a study; `ConfigError` if there are too many."""
    return _space(canonical_json(study.model_dump(mode="json")))


@lru_cache(maxsize=4)
def _space(study: str) -> Space:
    """A study of ten thousand combinations takes seconds to combine, and a plan and a decision each ask for them."""
    read = Study.model_validate_json(study)
    return Space(combinations(read), [scale_of(stage, baseline(read).configuration) for stage in read.combined])


def scale_of(stage: Stage, start: Configuration) -> Floats | None:
    """The values of no candidate and of each candidate of a stage whose candidates differ in one number only.

    The value of no candidate is the baseline's; nan if it sets none. None if there is no such number.
    """
    settings = [flat(changes_of(candidate)) for candidate in stage.candidates]
    names = {name for each in settings for name in each if any(other.get(name) != each[name] for other in settings)}
    if len(names) != 1:
        return None
    (name,) = names
    values = [each.get(name) for each in settings]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values):
        return None
    first = flat(start.model_dump()).get(name)
    is_number = isinstance(first, int | float) and not isinstance(first, bool) and first > 0
    return np.array([first if is_number else np.nan, *values], dtype=float)


def flat(changes: Mapping[str, object]) -> dict[tuple[str, str], object]:
    """Each changed setting, with those in a part of the configuration by its name and theirs."""
    found: dict[tuple[str, str], object] = {}
    for part, value in changes.items():
        found |= {(part, key): each for key, each in value.items()} if isinstance(value, dict) else {(part, ""): value}
    return found


class Knowledge:
    """The rows of a space in the table of a stage."""

    def __init__(
        self, study: Study, space: Space, plan: Plan, table: pd.DataFrame, predictions: Predictions | None = None
    ) -> None:
        self._space = space
        self.rows = rows_of(table)
        self._sign = study.objective.sign
        self._at = space.positions(plan)
        self.baseline = self._at.index(0) if 0 in self._at else None
        """The baseline's row."""
        start = self.rows[self.baseline or 0]
        self.is_open = disturbed(self.rows[0]) is None and disturbed(start) is None
        """Whether incumbent and baseline can be compared with; a disturbed run can neither win nor be beaten."""
        sound = [at for at, row in enumerate(self.rows) if disturbed(row) is None]
        self.fit = [at for at in sound if can_win(study, self.rows[at], start) and self._has_value(self.rows[at])]
        """Rows that can win; a value of 0 has no logarithm, and cannot."""
        self.working = [self._at[at] for at in self.fit]
        """Their positions."""
        # what misses a constraint shows how fast it is; what is invalid shows nothing
        valid = [at for at in sound if self.rows[at]["validity"] != "invalid"]
        self._valued = [at for at in valid if self.rows[at]["outcome"] == "ok" and self._has_value(self.rows[at])]
        self._failed = [self._at[at] for at in valid if at not in self.fit and self.rows[at]["outcome"] != NOT_RUN]
        self._prior = space.prior(study, predictions) if predictions else None
        self.surrogate = self._fitted() if self._valued else None
        self.left_out = np.zeros(len(space), dtype=bool)
        """Combinations that a trusted prior predicts to be far slower than the best of their engine."""
        if self._prior is not None and self.surrogate is not None:
            self.left_out = self._prior.left_out(self.surrogate.trust, len(self._valued))

    def predicted_far_below(self, plan: Plan) -> list[str]:
        """A line for each combination that is left out, and that no plan measured."""
        if self._prior is None:
            return []
        shares, measured = self._prior.below_best(), self._space.positions(plan)
        return [
            f"{self._space.variants[at].name}: predicted {100 * (shares[at] - 1):.0f} %, not measured"
            for at in np.flatnonzero(self.left_out)
            if at not in measured
        ]

    @staticmethod
    def _has_value(row: Row) -> bool:
        return math.isfinite(row["objective_value"]) and min(start_values(row), default=0.0) > 0

    def _fitted(self) -> Surrogate:
        values = [start_values(self.rows[number]) for number in self._valued]
        measurements = Measurements(
            levels=self._levels(self._valued),
            values=np.array([self._sign * np.log(each).mean() for each in values]),
            starts=np.array([float(len(each)) for each in values]),
            noise=pooled_noise(values),
        )
        at = [self._at[number] for number in self._valued]
        scaled = self._prior.scaled(at, measurements.values) if self._prior else None
        return fitted(measurements, self._space.counts, self._space.scales, scaled)

    def _levels(self, numbers: Sequence[int]) -> Levels:
        return self._space.levels[[self._at[number] for number in numbers]]

    def failed_with(self, refused: Sequence[int]) -> list[int]:
        """Positions that failed, and `refused` ones."""
        return list(dict.fromkeys([*self._failed, *refused]))

    def probability_of_working(self, levels: Levels, refused: Sequence[int]) -> Floats:
        """Of each combination, given what worked, what failed, and `refused` positions."""
        failed = self._space.levels[self.failed_with(refused)]
        return 1 - probability_of_failure(levels, self._levels(self.fit), failed, self._space.scales)

    def untried(self, taken: Sequence[int], failures: int) -> Iterator[tuple[int, int, Levels]]:
        """Options and choices that worked in none of `taken`, and in how much new company each combination has them.

        -1 without them. One that failed alone may need company, as an engine that starts with one layout only: it is
        given up after so many `failures`, or beside each choice that worked.
        """
        levels, failed = self._space.levels, self._space.levels[self._failed]
        worked = levels[[at for at in taken if at not in self._failed]]
        for option, choice in ((at, each) for at, count in enumerate(self._space.counts) for each in range(count)):
            has, beside = levels[:, option] == choice, failed[failed[:, option] == choice]
            if (worked[:, option] == choice).any() or self.left_out[has].all():
                continue
            company = np.where(has, 0, -1)
            if is_alone := (beside.sum(1) == choice).any():
                for each, met, good in zip(levels.T, beside.T, worked.T, strict=True):
                    company += has & np.isin(each, good) & ~np.isin(each, met)
            if not is_alone or (len(beside) < failures and company.max() > 0):
                yield option, choice, company

    def slow(self, taken: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Options and changes that worked, but nowhere as fast as the baseline, and that none of `taken` has alone.

        A value on a scale is left out if one between it and the baseline's was clearly slower alone.
        """
        levels, measured = self._space.levels[list(taken)], self._levels(self.fit)
        if self.baseline not in self.fit:
            return
        speeds = np.array([self._sign * math.log(self.rows[row]["objective_value"]) for row in self.fit])
        ahead = speeds - speeds[self.fit.index(self.baseline)]
        is_fast, is_one = ahead >= 0, (measured > 0).sum(1) == 1
        alone, slower = levels[(levels > 0).sum(1) == 1], measured[is_one & (ahead < -_CLEARLY)]
        for option, (count, scale) in enumerate(zip(self._space.counts, self._space.scales, strict=True)):
            sizes = np.zeros(count) if scale is None else np.nan_to_num(scale, nan=-np.inf)
            first, nearer = sizes[0], sizes[slower[slower[:, option] > 0, option]]
            for choice in sorted({*measured[~is_fast, option]} - {0, *measured[is_fast, option], *alone[:, option]}):
                is_between = (nearer > min(first, sizes[choice])) & (nearer < max(first, sizes[choice]))
                if not is_between.any():
                    yield option, int(choice)

    def changes(self, row: int) -> int:
        """In how many settings a row's configuration differs from the baseline."""
        return len(flat(self._space.variants[self._at[row]].changes))

    def prediction(self) -> Prediction:
        """Of the rows that can win, in the order of `fit`; there must be one."""
        assert self.surrogate is not None
        return self.surrogate.at(self._levels(self.fit))

    def best(self) -> Floats:
        """The best expected value of the rows that can win, or the worst value if none can, (samples,)."""
        assert self.surrogate is not None
        known = self.prediction() if self.fit else self.surrogate.at(self._levels(self._valued))
        best: Floats = known.mean.max(1) if self.fit else known.mean.min(1)
        return best


def design(
    levels: Levels,
    counts: Sequence[int],
    size: int,
    taken: Sequence[int],
    allowed: NDArray[np.bool_] | None = None,
) -> list[int]:
    """Positions of up to `size` more combinations to measure before any value is known, after those `taken`, in order.

    Each is the one that is least known after those before it: where nothing is known, it has the largest expected gain.
    Equals are taken in their order.
    """
    is_open = np.ones(len(levels), dtype=bool) if allowed is None else allowed.copy()
    is_open[list(taken)] = False
    nothing = Measurements(levels[:0], np.zeros(0), np.zeros(0), PRIOR)
    prediction, found = Surrogate(nothing, counts).at(levels), list(taken)
    for position in taken:
        prediction.believe(position)
    while len(found) < len(taken) + size and is_open.any():
        unsure = np.sqrt(prediction.variance).mean(0)
        # rounded, so that any machine takes the same of equals
        found.append(int(np.argmax(np.where(is_open, unsure.round(12), -np.inf))))
        is_open[found[-1]] = False
        prediction.believe(found[-1])
    return found[len(taken) :]
