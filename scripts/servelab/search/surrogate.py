"""A model of how options change the logarithm of the objective: what is expected of combinations not measured yet.

A Gaussian process with an analysis-of-variance kernel over the options: the effect of each option, of each pair and of
each three of them, and the noise of a server start. How large these are is not known beforehand, so predictions are
averaged over what the measurements leave likely. Pure functions of numpy arrays.

Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning"; Duvenaud, Nickisch and Rasmussen 2011, "Additive
Gaussian processes", whose elementary symmetric polynomials give the sums over pairs and over threes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from math import erf

import numpy as np
from numpy.typing import NDArray

from servelab.search.start_noise import StartNoise

Floats = NDArray[np.float64]
Levels = NDArray[np.int64]
"""(combinations, options): the number of each option's choice in each combination, from 0."""

_EFFECT = 0.04
"""Median of the prior of an option's effect: its standard deviation over the option's choices, as a logarithm."""
_ALL_SD, _EACH_SD = 0.8, 0.8
"""By how much the logarithms of all effects together, and of each of them, vary about that median."""
_PAIRS, _THREES, _SHARE_SD = 0.5, 0.2, 1.0
"""Median size of the effects of two and of three options together, as a share of their own; and how its log varies."""
_CONSTANT = 1.0
"""Prior variance of the overall level, about the mean of what is measured."""
_SAMPLES, _MOVES = 128, 2
_PREDICTING = 32
"""Samples of the sizes of effects: that are drawn, and that predict. More predict no better."""
_EXCHANGES = 4
"""Most passes that improve a design."""
_BLOCK = 512
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
class _Sizes:
    """Samples of the sizes of all effects, as variances of logarithms."""

    effects: Floats
    """(samples, options)"""
    pairs: Floats
    """(samples,): share of the effects of pairs."""
    threes: Floats
    """(samples,): share of the effects of threes."""
    noise: Floats
    """(samples,): of a single start."""


class Surrogate:
    """The model fitted to `measurements`; `counts` has the number of choices of each option.

    At least one measurement is needed. The same measurements give the same model.
    """

    def __init__(self, measurements: Measurements, counts: Sequence[int]) -> None:
        self._counts, self._at = tuple(counts), measurements.levels
        self._offset = float(measurements.values.mean())
        values = measurements.values - self._offset
        draws = np.random.default_rng(0)
        alike = _alike(self._at, self._at, self._counts)
        self._sizes = _sample(alike, values, measurements, draws)
        covariance = _covariance(alike, self._sizes) + _noise(self._sizes, measurements.starts)
        self._root = np.linalg.inv(np.linalg.cholesky(covariance))
        self._whitened = self._root @ values

    def means(self, levels: Levels) -> Floats:
        """Expected logarithm of the objective of each combination, (combinations,)."""
        return np.concatenate([each.mean.mean(0) for each in self._blocks(levels)])

    def at(self, levels: Levels) -> Prediction:
        """Prediction of few combinations."""
        cross = _covariance(_alike(self._at, levels, self._counts), self._sizes)
        whitened = self._root @ cross
        mean = self._offset + (whitened * self._whitened[:, :, None]).sum(1)
        diagonal = _covariance(np.ones((len(self._counts), 1, 1)), self._sizes)[:, 0]
        variance = np.maximum(diagonal - (whitened**2).sum(1), 1e-12)
        return Prediction(self, levels, mean, variance, self._sizes.noise, whitened)

    def expected_gains(self, levels: Levels, best: Floats) -> Floats:
        """`Prediction.expected_gain` of any number of combinations."""
        return np.concatenate([each.expected_gain(best) for each in self._blocks(levels)])

    def covariance(self, first: Levels, second: Levels) -> Floats:
        """Prior covariance of two sets of combinations, (samples, first, second)."""
        return _covariance(_alike(first, second, self._counts), self._sizes)

    def _blocks(self, levels: Levels) -> list[Prediction]:
        return [self.at(levels[start : start + _BLOCK]) for start in range(0, len(levels), _BLOCK)]


@dataclass
class Prediction:
    """What a model expects of some combinations, for each sample of the sizes of effects."""

    surrogate: Surrogate
    levels: Levels
    mean: Floats
    """(samples, combinations): expected logarithm of the objective."""
    variance: Floats
    """(samples, combinations)"""
    noise: Floats
    """(samples,): variance of a single start."""
    whitened: Floats = field(repr=False)
    """(samples, measurements, combinations): covariance with the measurements, times the inverse of their root."""

    def expected_gain(self, best: Floats) -> Floats:
        """Expected improvement on `best` (samples,), a logarithm: the mean of max(0, value − best), (combinations,).

        Jones, Schonlau and Welch 1998, "Efficient global optimization of expensive black-box functions", eq. 15.
        """
        scatter = np.sqrt(self.variance)
        ahead = (self.mean - best[:, None]) / scatter
        density = np.exp(-0.5 * ahead**2) / np.sqrt(2 * np.pi)
        gain: Floats = (scatter * (ahead * _normal(ahead) + density)).mean(0)
        return gain

    def difference(self, first: int, second: int) -> tuple[float, float]:
        """Expected difference of two of the combinations, and its standard deviation."""
        means = self.mean[:, first] - self.mean[:, second]
        variances = (
            self._covariances(first)[:, first]
            + self._covariances(second)[:, second]
            - 2 * self._covariances(first)[:, second]
        )
        return float(means.mean()), float(np.sqrt(max(0.0, variances.mean() + means.var())))

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
        """Covariance of one combination with all of them, given the measurements, (samples, combinations)."""
        prior = self.surrogate.covariance(self.levels[[position]], self.levels)[:, 0]
        known: Floats = (self.whitened[:, :, [position]] * self.whitened).sum(1)
        return prior - known


def spread(
    levels: Levels,
    counts: Sequence[int],
    size: int,
    taken: Sequence[int],
    allowed: NDArray[np.bool_] | None = None,
) -> list[int]:
    """Positions of up to `size` more combinations that say most about all effects, with those `taken`, in order.

    First greedily, each the one about which those before it leave most open, with effects of middling size; then each
    is exchanged for the one about which the others leave most open, as long as that says more. This raises the
    determinant of the measurements' covariance (D-optimality), which balances the choices of each option, and of pairs
    of options, as far as `levels` allows: Fedorov 1972, "Theory of Optimal Experiments". Equals are taken in their
    order.
    """
    sizes = _Sizes(np.full((1, len(counts)), _EFFECT**2), *np.array([_PAIRS, 0, _EFFECT / 2])[:, None] ** 2)
    total = _covariance(np.ones((len(counts), 1, 1)), sizes)[0, 0, 0]
    is_open = np.ones(len(levels), dtype=bool) if allowed is None else allowed.copy()
    is_open[list(taken)] = False

    @cache
    def covariances(position: int) -> Floats:
        found: Floats = _covariance(_alike(levels[[position]], levels, counts), sizes)[0, 0]
        return found

    def left_open(known: Sequence[int]) -> Floats:
        """Variance of each combination, given those that are known."""
        if not known:
            return np.full(len(levels), total)
        cross = np.array([covariances(position) for position in known])
        root = np.linalg.cholesky(cross[:, list(known)] + sizes.noise[0] * np.eye(len(known)))
        variance: Floats = total - ((np.linalg.inv(root) @ cross) ** 2).sum(0)
        return variance

    found: list[int] = []
    while len(found) < size and is_open.any():
        found.append(_first_largest(left_open([*taken, *found]), is_open))
        is_open[found[-1]] = False
    for _ in range(_EXCHANGES):
        before = list(found)
        for number, position in enumerate(before):
            variance = left_open([*taken, *found[:number], *found[number + 1 :]])
            other = _first_largest(variance, is_open)
            if is_open[other] and variance[other] > variance[position] * (1 + 1e-9):
                is_open[position], is_open[other] = True, False
                found[number] = other
        if found == before:
            break
    return found


def _first_largest(values: Floats, is_open: NDArray[np.bool_]) -> int:
    """Position of the largest of the open values; rounded, so that any machine takes the same of equals."""
    return int(np.argmax(np.where(is_open, values.round(12), -np.inf)))


def _alike(first: Levels, second: Levels, counts: Sequence[int]) -> Floats:
    """(options, first, second): 1 where both have the same choice, else so that the mean over choices is 0."""
    found = np.empty((len(counts), len(first), len(second)))
    for option, count in enumerate(counts):
        same = first[:, None, option] == second[None, :, option]
        found[option] = np.where(same, 1.0, -1.0 / (count - 1))
    return found


def _covariance(alike: Floats, sizes: _Sizes) -> Floats:
    """(samples, first, second) from `alike` (options, first, second).

    The sums over pairs and threes of options by Newton's identities: with power sums p1, p2, p3 the pairs are
    (p1² − p2) / 2, and the threes (p1³ − 3 p1 p2 + 2 p3) / 6. The variance of a pair's effect is the share of pairs
    times the geometric mean of its options' variances; of three options likewise.
    """
    options, rows, columns = alike.shape
    flat = alike.reshape(options, -1)
    squares, cubes = flat**2, flat**3
    effects = sizes.effects @ flat
    roots = np.sqrt(sizes.effects)
    pairs = ((roots @ flat) ** 2 - sizes.effects @ squares) / 2
    roots = np.cbrt(sizes.effects)
    ones = roots @ flat
    threes = (ones**3 - 3 * ones * (roots**2 @ squares) + 2 * (sizes.effects @ cubes)) / 6
    total = _CONSTANT + effects + sizes.pairs[:, None] * pairs + sizes.threes[:, None] * threes
    return total.reshape(-1, rows, columns)


def _noise(sizes: _Sizes, starts: Floats) -> Floats:
    """(samples, configurations, configurations): the noise of each configuration's mean on the diagonal."""
    return (sizes.noise[:, None] / starts)[:, :, None] * np.eye(len(starts))


def _sizes_of(normal: Floats, measurements: Measurements) -> _Sizes:
    """Sizes of effects from standard normal numbers (samples, options + 4): their prior."""
    options = normal.shape[1] - 4
    together, pairs, threes, noise = normal[:, options:].T
    known = measurements.noise
    return _Sizes(
        effects=np.exp(2 * (np.log(_EFFECT) + _EACH_SD * normal[:, :options] + _ALL_SD * together[:, None])),
        pairs=np.exp(2 * (np.log(_PAIRS) + _SHARE_SD * pairs)),
        threes=np.exp(2 * (np.log(_THREES) + _SHARE_SD * threes)),
        # the logarithm of a variance known with f degrees of freedom varies by about √(2 / f)
        noise=(known.sd_percent / 100) ** 2 * np.exp(np.sqrt(2 / known.freedom) * noise),
    )


def _log_likelihoods(alike: Floats, values: Floats, measurements: Measurements, normal: Floats) -> Floats:
    """(samples,): logarithm of the density of the values, but for a constant."""
    sizes = _sizes_of(normal, measurements)
    root = np.linalg.cholesky(_covariance(alike, sizes) + _noise(sizes, measurements.starts))
    whitened = np.linalg.solve(root, np.broadcast_to(values[:, None], (len(normal), len(values), 1)))
    logs: Floats = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
    squares: Floats = (whitened[:, :, 0] ** 2).sum(1)
    return -0.5 * squares - logs


def _sample(alike: Floats, values: Floats, measurements: Measurements, draws: np.random.Generator) -> _Sizes:
    """Sizes of effects that are likely given the values, `_PREDICTING` samples.

    Sequential Monte Carlo from the prior to the posterior: the likelihood is raised to a power that grows to 1, at each
    step as far as half of the samples still count; they are resampled, and moved by Metropolis' rule. Del Moral, Doucet
    and Jasra 2006, "Sequential Monte Carlo samplers".
    """
    width = len(alike) + 4
    normal = draws.standard_normal((_SAMPLES, width))
    likelihoods = _log_likelihoods(alike, values, measurements, normal)
    power = 0.0
    while power < 1:
        step = _longest_step(likelihoods, 1 - power)
        power = min(1.0, power + step)
        weights = np.exp(step * (likelihoods - likelihoods.max()))
        places = (np.arange(_SAMPLES) + draws.random()) / _SAMPLES * weights.sum()
        kept = np.minimum(np.searchsorted(np.cumsum(weights), places), _SAMPLES - 1)
        normal, likelihoods = normal[kept], likelihoods[kept]
        shape = np.linalg.cholesky(np.cov(normal.T) + 1e-6 * np.eye(width)) * 1.5 / np.sqrt(width)
        for _ in range(_MOVES):
            moved = normal + draws.standard_normal(normal.shape) @ shape.T
            found = _log_likelihoods(alike, values, measurements, moved)
            change = power * (found - likelihoods) - 0.5 * ((moved**2).sum(1) - (normal**2).sum(1))
            accepted = np.log(draws.random(_SAMPLES)) < change
            normal = np.where(accepted[:, None], moved, normal)
            likelihoods = np.where(accepted, found, likelihoods)
    return _sizes_of(normal[:: _SAMPLES // _PREDICTING], measurements)


def _longest_step(likelihoods: Floats, longest: float) -> float:
    """The largest power step at which half of the samples still count, at most `longest`, found by bisection."""

    def counted(step: float) -> float:
        weights = np.exp(step * (likelihoods - likelihoods.max()))
        return float(weights.sum() ** 2 / (weights**2).sum())

    if counted(longest) >= _SAMPLES / 2:
        return longest
    low, high = 0.0, longest
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if counted(middle) >= _SAMPLES / 2 else (low, middle)
    return max(low, 1e-3)  # so that it ends, whatever the likelihoods are


_erf = np.vectorize(erf, otypes=[float])


def _normal(values: Floats) -> Floats:
    """Distribution function of the standard normal distribution."""
    found: Floats = 0.5 * (1 + _erf(values / np.sqrt(2)))
    return found
