"""Distance: how far the log-probabilities are from the baseline's, where the engine gives them.

It is the mean KL divergence of the token that follows each question, from the likeliest tokens that both servers
print. The rest of the tokens counts as one. A token that the candidate does not print is taken to be as likely as it
can be: no likelier than the least likely one that it prints, nor than all those together that it does not print. So the
figure is a lower bound of the divergence over all tokens.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from servelab.answers.comparison import CANNOT_TELL, CHANGES, SAME, Allowed, Comparison, Figure, InstrumentFinding
from servelab.answers.instruments import INSTRUMENTS
from servelab.answers.question import Answer, usable_logprobs
from servelab.metrics.statistics import Interval, t_quantile


def skewed_mean(values: Sequence[float], confidence: float) -> Interval:
    """Mean with Hall's interval, which corrects Student's for the skewness of the values; no ends below three values.

    Hall 1992, J. R. Stat. Soc. B 54, 221 (the cubic transformation), with Student's quantiles. Student's interval ends
    too low for distances: it takes a mean at the limit for one below it too often. Raises `ValueError` on no values.
    """
    count, mean = len(values), statistics.fmean(values)
    if count < 3:
        return Interval(mean, None, None)
    deviation = statistics.stdev(values, mean)
    if deviation == 0:
        return Interval(mean, mean, mean)
    skewness = math.fsum(((value - mean) / deviation) ** 3 for value in values) / count
    quantile = t_quantile((1 + confidence) / 2, count - 1) / math.sqrt(count)
    low, high = (mean - deviation * _corrected(at, skewness, count) for at in (quantile, -quantile))
    return Interval(mean, low, high)


def _corrected(distance: float, skewness: float, count: int) -> float:
    """Distance of the mean from the truth, in standard deviations, at which Hall's statistic is `distance`."""
    if abs(skewness) < 1e-6:  # the limit for no skewness, where the formula divides by it
        return distance
    return 3 / skewness * (math.cbrt(1 + skewness * (distance - skewness / (6 * count))) - 1)


LEAST_SHARE = 0.95
"""Of the baseline's log-probabilities that the candidate must have too, to be called the same."""
LEAST_QUESTIONS = 100
"""To be called the same: the interval of fewer skewed values ends too low."""
_SMALLEST = 1e-6
"""Probability below which servers' digits mean nothing."""


class Distance:
    """See the module."""

    name = "distance"

    def judges(self, allowed: Allowed) -> bool:
        return allowed.most_kl_nats is not None

    def find(self, comparison: Comparison) -> InstrumentFinding | None:
        """See `Instrument.find`. Answers without usable log-probabilities are left out."""
        baseline, limit = comparison.baseline, comparison.allowed.most_kl_nats
        able = [key for key in comparison.questions if usable_logprobs(baseline[key]) is not None]
        if not able and limit is None:
            return None
        values = _divergences(comparison, able, comparison.candidate)
        floor = None if comparison.floor is None else _divergences(comparison, able, comparison.floor)
        verdict, reason, smallest = None, "reported", None
        if limit is not None:
            interval = _interval(values, comparison.confidence)
            verdict, reason = _judge(interval, limit, len(values), len(able))
            if interval is not None and interval.low is not None:
                smallest = limit + interval.value - interval.low
        mean = _interval(values, 0.95)
        ends = {} if mean is None else {"low": mean.low, "high": mean.high}
        figure = Figure(
            instrument="distance",
            name="first_token_kl",
            unit="nats",
            value=None if mean is None else mean.value,
            floor=statistics.fmean(floor) if floor else None,
            allowed=limit,
            questions=len(values),
            **ends,
        )
        value = "no figure" if mean is None else f"{mean.value:.3g} nats"
        return InstrumentFinding(
            instrument="distance",
            verdict=verdict,
            why=f"{reason}: first token kl {value} over {len(values):,} questions",
            smallest_loss=smallest,
            loss_unit="nats",
            figures=[figure],
        )


def _judge(interval: Interval | None, limit: float, measured: int, able: int) -> tuple[str, str]:
    if interval is not None and interval.low is not None and interval.low > limit:
        return CHANGES, f"more than {limit:g}, beyond noise"
    if measured < LEAST_SHARE * able or interval is None or interval.high is None:
        return CANNOT_TELL, f"the candidate has log-probabilities for {measured:,} of {able:,} questions only"
    if measured < LEAST_QUESTIONS:
        return CANNOT_TELL, f"fewer than {LEAST_QUESTIONS} questions have log-probabilities"
    if interval.high > limit:
        return CANNOT_TELL, f"the interval reaches beyond {limit:g}"
    return SAME, f"at most {limit:g}"


def _divergences(comparison: Comparison, able: Sequence[str], answers: Mapping[str, Answer]) -> list[float]:
    found = [_kl(comparison.baseline[key], answers[key]) for key in able if key in answers]
    return [value for value in found if value is not None]


def _interval(values: Sequence[float], confidence: float) -> Interval | None:
    """Mean with its interval; None without any value."""
    return skewed_mean(values, confidence) if values else None


def _kl(baseline: Answer, candidate: Answer) -> float | None:
    """Lower bound of the divergence of the candidate's first token from the baseline's, in nats."""
    here, there = usable_logprobs(baseline), usable_logprobs(candidate)
    if here is None or there is None:
        return None
    printed = [math.exp(logprob) for logprob in there.values()]
    most_unprinted = min(*printed, 1 - math.fsum(printed))
    total = 0.0
    for token, logprob in here.items():
        share = math.exp(logprob)
        if share > 0:
            likely = math.exp(there[token]) if token in there else most_unprinted
            total += share * (logprob - math.log(max(_SMALLEST, likely)))
    rest = 1 - math.fsum(math.exp(value) for value in here.values())
    other_rest = 1 - math.fsum(math.exp(value) for token, value in there.items() if token in here)
    if rest > _SMALLEST:
        total += rest * math.log(rest / max(_SMALLEST, other_rest))
    return max(0.0, total)


INSTRUMENTS.register("distance", Distance())
