"""A model of how options change the logarithm of the objective: what is expected of combinations not measured yet.

A mixture of Gaussian processes over the options: each has an effect of each option, of each pair and of each three of
them, and the noise of a server start. How large these are is not known beforehand, so many processes are drawn from a
prior, and predictions are averaged over them by how likely each makes the measurements. They differ in three more ways:

- In half of them an effect is that of a change from the baseline, as of a switch that is turned on; in the others all
  choices of an option are alike, as for a size.
- In two thirds of them neighbours on a scale, such as 16 and 32 sequences, have effects that are like each other; in
  one third also distant values, and the baseline's value, if it is not known, is taken to be the least.
- In half of them one pair of options, another in each, has an effect together that is larger than all others: few
  choices meet, but these may matter most.

Pure functions of numpy arrays.

Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning"; Duvenaud, Nickisch and Rasmussen 2011, "Additive
Gaussian processes", whose elementary symmetric polynomials give the sums over pairs and over threes; George and
McCulloch 1993, "Variable selection via Gibbs sampling", for a mixture of small and large effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import combinations, zip_longest

import numpy as np
from numpy.typing import NDArray

from servelab.search.decide import PRIOR, StartNoise

Floats = NDArray[np.float64]
Levels = NDArray[np.int64]
"""(combinations, options): the number of each option's choice in each combination; 0 is the baseline's."""
Scales = Sequence[Floats | None]
"""The values of each option's choices, nan where unknown; None for an option without an order."""
_Tables = list[tuple[Floats, Levels]]
"""For each option how alike two choices may be, and the number of that value for each two choices."""

_EFFECT = 0.04
"""Median of the prior of an option's effect: its standard deviation over the option's choices, as a logarithm."""
_ALL_SD, _EACH_SD = 0.8, 0.5
"""By how much the logarithms of all effects together, and of each of them, vary about that median."""
_PAIRS, _THREES, _SHARE_SD = 0.5, 0.2, 1.0
"""Median size of the effects of two and of three options together, as a share of their own; and how its log varies."""
_LARGE, _LARGE_SD, _LARGE_SHARE = 0.1, 0.5, 0.5
"""Median of the one large effect of two options together, as a logarithm; how its log varies; and the share of the
processes that have one."""
_REACH = (1.5, 4.0)
"""Steps of a scale over which the effects of its values are alike: of neighbours, and of distant values."""
_KINDS, _SHARES = 6, (0, 1, 2, 3, 0, 1, 2, 3, 4, 5)
"""Kinds of processes, and how many there are of each."""
_CONSTANT = 1.0
"""Prior variance of the overall level, about the mean of what is measured."""
_PROCESSES = 256
_NEGLIGIBLE = 1e-3
"""A process that is less likely than this, as a share of the likeliest, predicts nothing."""
_BLOCK = 128
"""Combinations predicted at once: bounds the memory that ten thousand take."""


@dataclass(frozen=True)
class Measurements:
    """What is measured: a row for each configuration."""

    levels: Levels
    values: Floats
    """(configurations,): mean logarithm of the objective over its starts, larger is better."""
    starts: Floats
    """(configurations,): server starts of each."""
    noise: StartNoise
    """Noise of a single start."""


@dataclass(frozen=True)
class _Processes:
    """The sizes of all effects in each process, as variances of logarithms; all arrays begin with the processes."""

    kind: NDArray[np.int64]
    """(processes,): 0 if effects are those of a change from the baseline, 1 if all choices are alike; 2 and 3 likewise,
    but neighbours on a scale are like each other; 4 and 5 distant values too."""
    effects: Floats
    """(processes, options)"""
    pairs: Floats
    """(processes,): share of the effects of pairs."""
    threes: Floats
    """(processes,): share of the effects of threes."""
    large: Floats
    """(processes,): of the one large effect; 0 if there is none."""
    together: NDArray[np.int64]
    """(processes, 2): the options that have it."""
    noise: Floats
    """(processes,): of a single start."""

    def only(self, chosen: NDArray[np.bool_]) -> _Processes:
        """Some of them."""
        return _Processes(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


class Surrogate:
    """The model fitted to `measurements`; `counts` has the number of choices of each option.

    The same measurements give the same model; none give the prior.
    """

    def __init__(self, measurements: Measurements, counts: Sequence[int], scales: Scales = ()) -> None:
        self._at = measurements.levels
        self._alike = _tables([_alike(*each) for each in zip_longest(counts, scales)])
        self._offset = float(measurements.values.mean()) if len(self._at) else 0.0
        values = measurements.values - self._offset
        processes = _drawn(tuple(counts), measurements.noise)
        covariance = self._covariance(processes, self._at, self._at)
        covariance += (processes.noise[:, None] / measurements.starts)[:, :, None] * np.eye(len(values))
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        whitened = root @ values
        logs = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1) - 0.5 * (whitened**2).sum(1)
        likely = np.exp(logs - logs.max())
        kept = likely > _NEGLIGIBLE
        self.weights: Floats = likely[kept] / likely[kept].sum()
        """(processes,): how likely each is; their sum is 1."""
        self._processes, self._root, self._whitened = processes.only(kept), root[kept], whitened[kept]

    def at(self, levels: Levels) -> Prediction:
        """Prediction of few combinations."""
        whitened = self._root @ self.covariance(self._at, levels)
        mean = self._offset + (whitened * self._whitened[:, :, None]).sum(1)
        prior = _covariance(levels, levels, self._alike, self._processes)
        variance = np.maximum(prior - (whitened**2).sum(1), 1e-12)
        return Prediction(self, levels, mean, variance, self._processes.noise, whitened)

    def expected_gains(self, levels: Levels, best: Floats) -> Floats:
        """`Prediction.expected_gain` of any number of combinations."""
        return np.concatenate([each.expected_gain(best) for each in self._blocks(levels)])

    def covariance(self, first: Levels, second: Levels) -> Floats:
        """Prior covariance of two sets of combinations, (processes, first, second)."""
        return self._covariance(self._processes, first, second)

    def _covariance(self, processes: _Processes, first: Levels, second: Levels) -> Floats:
        return _covariance(first[:, None], second[None], self._alike, processes)

    def _blocks(self, levels: Levels) -> list[Prediction]:
        return [self.at(levels[start : start + _BLOCK]) for start in range(0, len(levels), _BLOCK)]


@dataclass
class Prediction:
    """What a model expects of some combinations, in each of its processes."""

    surrogate: Surrogate
    levels: Levels
    mean: Floats
    """(processes, combinations): expected logarithm of the objective."""
    variance: Floats
    """(processes, combinations)"""
    noise: Floats
    """(processes,): variance of a single start."""
    whitened: Floats = field(repr=False)
    """(processes, measurements, combinations): covariance with the measurements, times the inverse of their root."""

    def expected(self) -> Floats:
        """Expected logarithm of the objective over all processes, (combinations,)."""
        found: Floats = self.surrogate.weights @ self.mean
        return found

    def expected_gain(self, best: Floats) -> Floats:
        """Expected improvement on `best` (processes,), a logarithm: the mean of max(0, value − best), (combinations,).

        Jones, Schonlau and Welch 1998, "Efficient global optimization of expensive black-box functions", eq. 15.
        """
        scatter = np.sqrt(self.variance)
        ahead = (self.mean - best[:, None]) / scatter
        density = np.exp(-0.5 * ahead**2) / np.sqrt(2 * np.pi)
        gain: Floats = self.surrogate.weights @ (scatter * (ahead * _normal(ahead) + density))
        return gain

    def differences(self, other: int) -> tuple[Floats, Floats]:
        """Expected difference of each combination from one of them, and its standard deviation; (combinations,)."""
        weights = self.surrogate.weights
        means = self.mean - self.mean[:, [other]]
        variances = self.variance + self.variance[:, [other]] - 2 * self._covariances(other)
        expected = weights @ means
        found = weights @ (np.maximum(variances, 0) + (means - expected) ** 2)
        found[other] = 0
        return expected, np.sqrt(found)

    def believe(self, position: int) -> None:
        """Counts a combination as measured with the expected outcome, so that the next choice is another one.

        The "kriging believer" of Ginsbourger, Le Riche and Carraro 2010, "Kriging is well-suited to parallelize
        optimization".
        """
        covariances = self._covariances(position)
        step = covariances / np.sqrt(self.variance[:, [position]] + self.noise[:, None])
        self.whitened = np.concatenate([self.whitened, step[:, None]], axis=1)
        self.variance = np.maximum(self.variance - step**2, 1e-12)

    def _covariances(self, position: int) -> Floats:
        """Covariance of one combination with all of them, given the measurements, (processes, combinations)."""
        prior = self.surrogate.covariance(self.levels[[position]], self.levels)[:, 0]
        known: Floats = (self.whitened[:, :, [position]] * self.whitened).sum(1)
        return prior - known


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
        unsure = prediction.surrogate.weights @ np.sqrt(prediction.variance)
        # rounded, so that any machine takes the same of equals
        found.append(int(np.argmax(np.where(is_open, unsure.round(12), -np.inf))))
        is_open[found[-1]] = False
        prediction.believe(found[-1])
    return found[len(taken) :]


def _alike(count: int, scale: Floats | None) -> Floats:
    """How alike two choices of an option are, (kinds, choices, choices); the kinds are those of `_Processes.kind`.

    Between changes from the baseline 1 where equal, else 0; between choices that are all alike so that the mean over
    them is 0.
    """
    changes = np.eye(count)
    changes[0, 0] = 0
    found = [changes, _centred(np.eye(count))]
    if scale is None:
        return np.array([*found, *found, *found])
    for reach, from_least in zip(_REACH, (False, True), strict=True):
        near = _near(scale, reach, from_least)
        to_baseline = near - near[[0]] - near[:, [0]] + near[0, 0]
        found += [to_baseline / np.diag(to_baseline)[1:].mean(), _centred(near)]
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


def _tables(alike: Sequence[Floats]) -> list[_Tables]:
    """The values of `alike` for each kind and option, and the number of the value that each two choices have."""
    found = []
    for kind in range(_KINDS):
        values = [np.unique(each[kind], return_inverse=True) for each in alike]
        found.append([(each, at.reshape(of[kind].shape)) for (each, at), of in zip(values, alike, strict=True)])
    return found


def _covariance(first: Levels, second: Levels, kinds: Sequence[_Tables], processes: _Processes) -> Floats:
    """Prior covariance of each of `first` with each of `second`, (processes, first, second); the two may broadcast.

    Computed once for all pairs of combinations whose options are alike in the same way.
    """
    first, second = np.broadcast_arrays(first, second)
    total = np.empty((len(processes.noise), *first.shape[:-1]))
    for kind, options in enumerate(kinds):
        chosen = processes.kind == kind
        if not chosen.any():
            continue
        code = np.zeros(first.shape[:-1], dtype=np.int64)
        for option, (values, numbers) in enumerate(options):
            code = code * len(values) + numbers[first[..., option], second[..., option]]
        codes, at = np.unique(code, return_inverse=True)
        shared = np.empty((len(options), len(codes)))
        for option in reversed(range(len(options))):
            values = options[option][0]
            codes, number = np.divmod(codes, len(values))
            shared[option] = values[number]
        total[chosen] = _of_alike(shared, processes.only(chosen))[:, at.reshape(code.shape)]
    return total


def _of_alike(alike: Floats, processes: _Processes) -> Floats:
    """Prior covariance of pairs of combinations whose options are `alike`, (options, pairs); (processes, pairs).

    The sums over pairs and threes of options by Newton's identities: with power sums p1, p2, p3 the pairs are
    (p1² − p2) / 2, and the threes (p1³ − 3 p1 p2 + 2 p3) / 6. The variance of a pair's effect is the share of pairs
    times the geometric mean of its options' variances; of three options likewise.
    """
    squares, cubes = alike**2, alike**3
    effects = processes.effects @ alike
    roots = np.sqrt(processes.effects)
    pairs = ((roots @ alike) ** 2 - processes.effects @ squares) / 2
    roots = np.cbrt(processes.effects)
    ones = roots @ alike
    threes = (ones**3 - 3 * ones * (roots**2 @ squares) + 2 * (processes.effects @ cubes)) / 6
    large = processes.large[:, None] * alike[processes.together[:, 0]] * alike[processes.together[:, 1]]
    found: Floats = _CONSTANT + effects + processes.pairs[:, None] * pairs + processes.threes[:, None] * threes + large
    return found


@lru_cache(maxsize=32)
def _drawn(counts: tuple[int, ...], noise: StartNoise) -> _Processes:
    """The processes of the prior; the same for the same arguments."""
    draws, options = np.random.default_rng(0), len(counts)
    normal = draws.standard_normal((_PROCESSES, options + 5))
    every, pairs, threes, large, scatter = normal[:, options:].T
    several = draws.permutation(np.array([*combinations(range(options), 2)] or [(0, 0)]))
    has_large = (np.arange(_PROCESSES) < _LARGE_SHARE * _PROCESSES) & (options > 1)
    return _Processes(
        kind=draws.permutation(np.resize(_SHARES, _PROCESSES)),
        effects=np.exp(2 * (np.log(_EFFECT) + _EACH_SD * normal[:, :options] + _ALL_SD * every[:, None])),
        pairs=np.exp(2 * (np.log(_PAIRS) + _SHARE_SD * pairs)),
        threes=np.exp(2 * (np.log(_THREES) + _SHARE_SD * threes)),
        large=np.where(has_large, np.exp(2 * (np.log(_LARGE) + _LARGE_SD * large)), 0.0),
        together=several[np.arange(_PROCESSES) % len(several)],
        # the logarithm of a variance known with f degrees of freedom varies by about √(2 / f)
        noise=(noise.sd_percent / 100) ** 2 * np.exp(np.sqrt(2 / noise.freedom) * scatter),
    )


def _normal(values: Floats) -> Floats:
    """Distribution function of the standard normal distribution, to 1e-7.

    Abramowitz and Stegun 1964, "Handbook of Mathematical Functions", 26.2.17.
    """
    near = 1 / (1 + 0.2316419 * np.abs(values))
    series = near * np.polyval([1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530], near)
    above = np.exp(-0.5 * values**2) / np.sqrt(2 * np.pi) * series
    found: Floats = np.where(values > 0, 1 - above, above)
    return found
