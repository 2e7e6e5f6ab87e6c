"""How much a configuration's value differs from one server start to the next, pooled over configurations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servelab.metrics.statistics import t_quantile


@dataclass(frozen=True)
class StartNoise:
    """Scatter of the values of single starts, each with all its rounds, about their configuration's typical value."""

    sd_percent: float
    """100 × the standard deviation of the natural logarithm of a start's value."""
    freedom: float
    """Degrees of freedom it was estimated with; those of a prior count."""

    def updated(self, squares: float, freedom: float) -> StartNoise:
        """The noise with further data: the sum of `squares` of log deviations, which has `freedom` degrees of freedom.

        The conjugate update of a scaled inverse chi-squared prior: Gelman et al., "Bayesian Data Analysis", 3rd ed.,
        section 2.6.
        """
        total = self.freedom + freedom
        variance = (self.freedom * (self.sd_percent / 100) ** 2 + squares) / total
        return StartNoise(100 * math.sqrt(variance), total)


PRIOR = StartNoise(sd_percent=2.5, freedom=3.0)
"""Assumed before anything was started twice; it weighs as much as three repeated starts.

Measured between starts, rounds included: 1.6 % on vLLM, 5.7 % on llama.cpp."""


def pooled_noise(configurations: Iterable[Sequence[float]], prior: StartNoise = PRIOR) -> StartNoise:
    """The noise between starts, from the values of each configuration's starts under one load.

    As in a one-way analysis of variance of the logarithms: Σ (log value − mean of its configuration)², with Σ (n − 1)
    degrees of freedom, added to the prior. A configuration with a single start adds nothing. `prior` may be the noise
    of past studies of the same engine and device. Raises `ValueError` on a value that is not above 0.
    """
    noise = prior
    for values in configurations:
        if any(not 0 < value < math.inf for value in values):
            raise ValueError(f"values of starts must be above 0: {list(values)}")
        if len(values) > 1:
            noise = noise.updated(sum_of_squares([math.log(value) for value in values]), len(values) - 1)
    return noise


def sum_of_squares(values: Sequence[float]) -> float:
    """Σ (value − mean)², of at least one value."""
    mean = statistics.fmean(values)
    return sum((value - mean) ** 2 for value in values)


def smallest_change_percent(noise: StartNoise, starts: int = 1, baseline_starts: int = 1) -> float:
    """The smallest change in percent that so many starts a side could have seen: half of its 95 % interval's width.

    A measured change of this size just excludes no change; a smaller one does not.
    t(0.975, freedom) · sd · √(1 / starts + 1 / baseline_starts), from the logarithm back to percent.
    """
    half = t_quantile(0.975, noise.freedom) * noise.sd_percent / 100 * math.sqrt(1 / starts + 1 / baseline_starts)
    return 100 * math.expm1(half)
