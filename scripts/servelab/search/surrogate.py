"""A model of how options change the logarithm of the objective: what is expected of combinations not measured yet.

A mixture of Gaussian processes over the options: each has an effect of each option, of each pair and each three of
them, and of the whole combination, and the noise of a server start. How large these are is not known beforehand, so
many processes are drawn from a prior and moved to where the measurements make them likely. They differ in three more
ways:

- In half of them an effect is that of a change from the baseline, as of a switch that is turned on; in the others all
  choices of an option are alike, as for a size.
- In two thirds of them neighbours on a scale, such as 16 and 32 sequences, have effects that are like each other; in
  one third also distant values, and the baseline's value, if it is not known, is taken to be the least.
- In half of them one pair of options, another in each, has an effect together that is larger than all others: few
  choices meet, but these may matter most.

Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning"; Duvenaud, Nickisch and Rasmussen 2011, "Additive
Gaussian processes", whose elementary symmetric polynomials give the sums over pairs and over threes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import combinations, pairwise, zip_longest
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servelab.search.decide import StartNoise
from servelab.search.likeness import Floats, Levels, Scales, Tables, alike, tables
from servelab.search.prior import Scaled

_EFFECT = 0.04
"""Median of the prior of an option's effect: its standard deviation over the option's choices, as a logarithm."""
_ALL_SD, _EACH_SD = 0.8, 0.5
"""By how much the logarithms of all effects together, and of each of them, vary about that median."""
_PAIRS, _THREES, _SHARE_SD = 0.5, 0.2, 1.0
"""Median size of the effects of two and of three options together, as a share of their own; and how its log varies."""
_LARGE, _LARGE_SD, _LARGE_SHARE = 0.1, 0.5, 0.5
"""Median of the one large effect of two options together, as a logarithm; how its log varies; and the share of the
processes that have one."""
_SHARES = (0, 1, 2, 3, 0, 1, 2, 3, 4, 5)
"""How many processes there are of each kind."""
_CONSTANT = 1.0
"""Prior variance of the overall level, about the mean of what is measured."""
_PROCESSES = 128
_WHOLE, _WHOLE_SD = 0.05, 1.0
"""Median of the effect of a whole combination, which no sum explains, as a logarithm; and how its log varies."""
_MATTERS_SD = 2.0
"""By how much combinations differ in it that differ in an option varies by so much, on the logistic scale."""
_POWERS, _STEPS = (0.0, 0.05, 0.15, 0.4, 1.0), (0.5, 0.25)
"""How much the measurements count in each step, and how far the sizes are moved in it."""
_normal = np.vectorize(NormalDist().cdf, otypes=[float])
_NORMALS = np.array([NormalDist().inv_cdf((at + 0.5) / 64) for at in range(64)])
_BLOCK = 128
"""Combinations predicted at once: bounds the memory that ten thousand take."""


class Measurements(NamedTuple):
    """The measured figures: a row for each configuration."""

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

    normal: Floats
    """(processes, sizes): all sizes before they are scaled: normal with mean 0 and standard deviation 1."""
    kind: NDArray[np.int64]
    """(processes,): 0 if effects are those of a change from the baseline, 1 if all choices are alike; 2 and 3 likewise,
    but neighbours on a scale are like each other; 4 and 5 distant values too."""
    together: Levels
    """(processes, 2): the options that have the large effect; -1 if there is none."""
    effects: Floats
    """(processes, options)"""
    matters: Floats
    """(processes, options): by how much combinations that differ in an option differ in the effect of the whole."""
    pairs: Floats
    """(processes,): share of the effects of pairs."""
    threes: Floats
    """(processes,): share of the effects of threes."""
    large: Floats
    """(processes,): of the one large effect; 0 if there is none."""
    whole: Floats
    """(processes,): of the whole combination."""
    noise: Floats
    """(processes,): of a single start."""
    trust: Floats
    """(processes,): 1 if the prior's means are its own, else 0."""

    def only(self, chosen: NDArray[np.int64]) -> _Processes:
        """Some of them."""
        return _Processes(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


def _scaled(
    normal: Floats, kind: NDArray[np.int64], together: Levels, noise: StartNoise, trust: Floats, error: float = 0.0
) -> _Processes:
    """Processes with the sizes that belong to `normal`; those that trust a prior have its error."""
    options = (normal.shape[1] - 6) // 2
    own, matters, (every, pairs, threes, large, whole, scatter) = np.split(normal.T, [options, 2 * options])
    return _Processes(
        normal,
        kind,
        together,
        effects=np.exp(2 * (np.log(_EFFECT) + _EACH_SD * own.T + _ALL_SD * every[:, None])),
        matters=1 / (1 + np.exp(-_MATTERS_SD * matters.T)),
        pairs=np.exp(2 * (np.log(_PAIRS) + _SHARE_SD * pairs)),
        threes=np.exp(2 * (np.log(_THREES) + _SHARE_SD * threes)),
        large=np.where(together[:, 0] < 0, 0.0, np.exp(2 * (np.log(_LARGE) + _LARGE_SD * large))),
        whole=np.exp(2 * (np.log(_WHOLE) + _WHOLE_SD * whole)) + trust * error**2,
        # the logarithm of a variance known with f degrees of freedom varies by about √(2 / f)
        noise=(noise.sd_percent / 100) ** 2 * np.exp(np.sqrt(2 / noise.freedom) * scatter),
        trust=trust,
    )


class Surrogate:
    """The model fitted to `measurements`; `counts` has the number of choices of each option.

    The same measurements give the same model; none give the prior. Half of the processes take the means of `predicted`
    and vary about them, until the measurements say which are likely.
    """

    def __init__(
        self,
        measurements: Measurements,
        counts: Sequence[int],
        scales: Scales = (),
        predicted: Scaled | None = None,
    ) -> None:
        self._at = measurements.levels
        self._alike = tables([alike(*each) for each in zip_longest(counts, scales)])
        self._offset = float(measurements.values.mean()) if len(self._at) else 0.0
        self._values, self._starts = measurements.values - self._offset, measurements.starts
        self._pairs = _Pairs(self._at[:, None], self._at[None], self._alike)
        self._predicted = predicted
        drawn = _drawn(tuple(counts), measurements.noise)
        if predicted is not None:
            trust = np.resize([1.0, 0.0], _PROCESSES)
            drawn = _scaled(drawn.normal, drawn.kind, drawn.together, measurements.noise, trust, predicted.error)
        self._processes = self._likely(drawn, measurements.noise)
        self._root, self._whitened, _ = self._fitted(self._processes)

    def _likely(self, processes: _Processes, noise: StartNoise) -> _Processes:
        """Processes as likely as the measurements make them, from those of the prior: by sequential Monte Carlo.

        The measurements count more from step to step. In each, likely processes are copied, and the sizes of all are
        moved within the prior (Crank and Nicolson's proposal) and kept as likely. Chopin 2002, "A sequential particle
        filter method for static models"; Cotter et al. 2013, "MCMC methods for functions".
        """
        if not len(self._at):
            return processes
        draws, number = np.random.default_rng(1), len(processes.kind)
        logs = self._fitted(processes)[2]
        for before, power in pairwise(_POWERS):
            likely = np.exp((power - before) * (logs - logs.max())).cumsum()
            at = np.searchsorted(likely / likely[-1], (np.arange(number) + draws.random()) / number)
            at = np.minimum(at, number - 1)
            processes, logs = processes.only(at), logs[at]
            for step in _STEPS:
                normal = np.sqrt(1 - step**2) * processes.normal + step * draws.standard_normal(processes.normal.shape)
                found = self._fitted(self._moved(processes, normal, noise))[2]
                moved = np.log(draws.random(number)) < power * (found - logs)
                normal = np.where(moved[:, None], normal, processes.normal)
                processes = self._moved(processes, normal, noise)
                logs = np.where(moved, found, logs)
        return processes

    def _moved(self, processes: _Processes, normal: Floats, noise: StartNoise) -> _Processes:
        error = self._predicted.error if self._predicted else 0.0
        return _scaled(normal, processes.kind, processes.together, noise, processes.trust, error)

    def _means(self, levels: Levels, processes: _Processes) -> Floats:
        """What each process expects of combinations before any measurement, about the offset."""
        if self._predicted is None:
            return np.zeros((1, 1))
        found: Floats = processes.trust[:, None] * (self._predicted.of(levels) - self._offset)
        return found

    @property
    def trust(self) -> float:
        """How likely the measurements make the means of a prior."""
        return float(self._processes.trust.mean())

    def _fitted(self, processes: _Processes) -> tuple[Floats, Floats, Floats]:
        """The inverse root of the measurements' covariance, the values times it, and how likely each process is."""
        covariance = self._pairs.covariance(processes)
        covariance += (processes.noise[:, None] / self._starts)[:, :, None] * np.eye(len(self._values))
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        away = self._values - self._means(self._at, processes)
        whitened = root @ self._values if self._predicted is None else (root @ away[:, :, None])[:, :, 0]
        logs = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1) - 0.5 * (whitened**2).sum(1)
        return root, whitened, logs

    def at(self, levels: Levels) -> Prediction:
        """Prediction of few combinations."""
        whitened = self._root @ self.covariance(self._at, levels)
        mean = self._offset + (whitened * self._whitened[:, :, None]).sum(1)
        if self._predicted is not None:
            mean += self._means(levels, self._processes)
        prior = _Pairs(levels, levels, self._alike).covariance(self._processes)
        variance = np.maximum(prior - (whitened**2).sum(1), 1e-12)
        return Prediction(self, levels, mean, variance, self._processes.noise, whitened)

    def expected_gains(self, levels: Levels, best: Floats) -> Floats:
        """`Prediction.expected_gain` of any number of combinations."""
        blocks = [self.at(levels[start : start + _BLOCK]) for start in range(0, len(levels), _BLOCK)]
        return np.concatenate([block.expected_gain(best) for block in blocks])

    def covariance(self, first: Levels, second: Levels) -> Floats:
        """Prior covariance of two sets of combinations, (processes, first, second)."""
        return _Pairs(first[:, None], second[None], self._alike).covariance(self._processes)


@dataclass
class Prediction:
    """The expectation of a model for some combinations, in each of its processes."""

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
        found: Floats = self.mean.mean(0)
        return found

    def expected_gain(self, best: Floats) -> Floats:
        """Expected improvement on `best` (processes,), a logarithm: the mean of max(0, value − best), (combinations,).

        Jones, Schonlau and Welch 1998, "Efficient global optimization of expensive black-box functions", eq. 15.
        """
        scatter = np.sqrt(self.variance)
        ahead = (self.mean - best[:, None]) / scatter
        density = np.exp(-0.5 * ahead**2) / np.sqrt(2 * np.pi)
        gain: Floats = (scatter * (ahead * _normal(ahead) + density)).mean(0)
        return gain

    def differences(self, other: int) -> tuple[Floats, Floats]:
        """Expected difference of each combination from one of them, and its standard deviation; (combinations,)."""
        means = self.mean - self.mean[:, [other]]
        variances = self.variance + self.variance[:, [other]] - 2 * self._covariances(other)
        expected = means.mean(0)
        found = (np.maximum(variances, 0) + (means - expected) ** 2).mean(0)
        found[other] = 0
        return expected, np.sqrt(found)

    def worth(self, known: int) -> Floats:
        """By how much the best expectation rises by a start of each combination, (combinations,).

        The best of the first `known` ones, which are measured, and of that combination. Frazier, Powell and Dayanik
        2009, "The knowledge-gradient policy for correlated normal beliefs".
        """
        means, found = self.expected(), []
        for at in range(len(means)):
            shared = (self._covariances(at) + (self.mean[:, [at]] - means[at]) * self.mean).mean(0)
            after = means[:, None] + np.outer(shared / np.sqrt(shared[at] + self.noise.mean()), _NORMALS)
            found.append(np.maximum(after[:known].max(0), after[at]).mean() - means[:known].max())
        return np.array(found)

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


def fitted(
    measurements: Measurements, counts: Sequence[int], scales: Scales, predicted: Scaled | None = None
) -> Surrogate:
    """`Surrogate` of these measurements; a decision and the plan after it ask for the same."""
    arrays = [*measurements[:3], *(scale for scale in scales if scale is not None)]
    arrays += [predicted.means] if predicted else []
    key = (*counts, *(part.tobytes() for part in arrays), measurements.noise, predicted and predicted.error)
    if key not in _FITTED:
        _FITTED.clear()
        _FITTED[key] = Surrogate(measurements, counts, scales, predicted)
    return _FITTED[key]


_FITTED: dict[Hashable, Surrogate] = {}


class _Pairs:
    """Pairs of combinations, each of `first` with each of `second`; the two may broadcast.

    A covariance is computed once for all pairs whose options are alike in the same way.
    """

    def __init__(self, first: Levels, second: Levels, kinds: Sequence[Tables]) -> None:
        first, second = np.broadcast_arrays(first, second)
        self._kinds = []
        """For each kind how alike the options are, (2, options, ways), and the way of each pair."""
        for options in kinds:
            code = np.zeros(first.shape[:-1], dtype=np.int64)
            for option, (values, numbers) in enumerate(options):
                code = code * values.shape[1] + numbers[first[..., option], second[..., option]]
            codes, at = np.unique(code, return_inverse=True)
            shared = np.empty((2, len(options), len(codes)))
            for option in reversed(range(len(options))):
                values = options[option][0]
                codes, number = np.divmod(codes, values.shape[1])
                shared[:, option] = values[:, number]
            self._kinds.append((shared, at.reshape(code.shape)))

    def covariance(self, processes: _Processes) -> Floats:
        """Prior covariance of each pair, (processes, first, second)."""
        total = np.empty((len(processes.kind), *self._kinds[0][1].shape))
        for kind, (shared, at) in enumerate(self._kinds):
            chosen = np.flatnonzero(processes.kind == kind)
            if len(chosen):
                total[chosen] = _of_alike(shared[0], shared[1], processes.only(chosen))[:, at]
        return total


def _of_alike(alike: Floats, near: Floats, processes: _Processes) -> Floats:
    """Prior covariance of pairs of combinations whose options are `alike`, (options, pairs); (processes, pairs).

    The sums over pairs and threes of options by Newton's identities: with power sums p1, p2, p3 the pairs are
    (p1² − p2) / 2, and the threes (p1³ − 3 p1 p2 + 2 p3) / 6. The variance of a pair's effect is the share of pairs
    times the geometric mean of its options' variances; of three options likewise. The whole is the product over all
    options, each as far as it matters.
    """
    squares, cubes = alike**2, alike**3
    effects = processes.effects @ alike
    roots = np.sqrt(processes.effects)
    pairs = ((roots @ alike) ** 2 - processes.effects @ squares) / 2
    roots = np.cbrt(processes.effects)
    ones = roots @ alike
    threes = (ones**3 - 3 * ones * (roots**2 @ squares) + 2 * (processes.effects @ cubes)) / 6
    large = processes.large[:, None] * alike[processes.together[:, 0]] * alike[processes.together[:, 1]]
    whole = processes.whole[:, None] * np.prod(1 - processes.matters[:, :, None] * (1 - near), axis=1)
    small = processes.pairs[:, None] * pairs + processes.threes[:, None] * threes
    found: Floats = _CONSTANT + effects + small + large + whole
    return found


@lru_cache(maxsize=32)
def _drawn(counts: tuple[int, ...], noise: StartNoise) -> _Processes:
    """The processes of the prior; the same for the same arguments."""
    draws, options = np.random.default_rng(0), len(counts)
    normal = draws.standard_normal((_PROCESSES, 2 * options + 6))
    several = draws.permutation(np.array([*combinations(range(options), 2)] or [(-1, -1)]))
    together = several[np.arange(_PROCESSES) % len(several)]
    together[int(_LARGE_SHARE * _PROCESSES) :] = -1
    kinds = draws.permutation(np.resize(_SHARES, _PROCESSES))
    return _scaled(normal, kinds, together, noise, np.zeros(_PROCESSES))
