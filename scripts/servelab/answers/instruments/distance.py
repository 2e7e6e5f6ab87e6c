"""Distance: how far the log-probabilities are from the baseline's, where the engine gives them.

- KL divergence of the first token, from the likeliest tokens that both servers print. The rest of the tokens counts as
  one. A token that the candidate does not print is taken to be as likely as it can be: no likelier than the least
  likely one that it prints, nor than all those together that it does not print. So the figure is a lower bound of the
  divergence over all tokens.
- Perplexity of fixed texts: exp of the mean, over texts, of the difference of log-probability per token.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from servelab.answers.comparison import CANNOT_TELL, CHANGES, SAME, Allowed, Comparison, Figure, Finding
from servelab.answers.instruments import INSTRUMENTS
from servelab.answers.question import Answer, usable_logprobs
from servelab.answers.skewed_mean import skewed_mean
from servelab.metrics.statistics import Interval

LEAST_SHARE = 0.95
"""Of the baseline's log-probabilities that the candidate must have too, to be called the same."""
LEAST_QUESTIONS = 100
"""To be called the same: the interval of fewer skewed values ends too low."""
_SMALLEST = 1e-6
"""Probability below which servers' digits mean nothing."""

Difference = Callable[[Answer, Answer], float | None]


class Distance:
    """See the module."""

    name = "distance"

    def judges(self, allowed: Allowed) -> bool:
        """See `Instrument.judges`."""
        return allowed.most_kl_nats is not None or allowed.most_perplexity_percent is not None

    def find(self, comparison: Comparison) -> Finding | None:
        """See `Instrument.find`. Answers without usable log-probabilities are left out."""
        allowed = comparison.allowed
        results = [
            _measure(comparison, "first_token_kl", "nats", _kl, allowed.most_kl_nats, lambda mean: mean),
            _measure(comparison, "perplexity_rise", "percent", _per_token, allowed.most_perplexity_percent, _percent),
        ]
        found = [result for result in results if result is not None]
        if not found:
            return None
        worst = min(found, key=lambda finding: _ORDER.index(finding.verdict))
        figures = [figure for finding in found for figure in finding.figures]
        return worst.model_copy(update={"figures": figures, "why": "; ".join(finding.why for finding in found)})


_ORDER: list[str | None] = [CHANGES, CANNOT_TELL, SAME, None]


def _measure(
    comparison: Comparison,
    name: str,
    unit: str,
    difference: Difference,
    limit: float | None,
    shown: Callable[[float], float],
) -> Finding | None:
    """One distance; None if the baseline's answers have nothing for it and it has no limit."""
    baseline = comparison.baseline
    able = [key for key in comparison.questions if difference(baseline[key], baseline[key]) is not None]
    if not able and limit is None:
        return None
    values = _differences(comparison, able, comparison.candidate, difference)
    floor = None if comparison.floor is None else _differences(comparison, able, comparison.floor, difference)
    verdict, reason, smallest = None, "reported", None
    if limit is not None:
        interval = _interval(values, comparison.confidence, shown)
        verdict, reason = _judge(interval, limit, len(values), len(able))
        if interval is not None and interval.low is not None:
            smallest = limit + interval.value - interval.low
    mean = _interval(values, 0.95, shown)
    figure = Figure(
        instrument="distance",
        name=name,
        unit=unit,
        value=None if mean is None else mean.value,
        low=None if mean is None else mean.low,
        high=None if mean is None else mean.high,
        floor=shown(statistics.fmean(floor)) if floor else None,
        allowed=limit,
        questions=len(values),
    )
    label = name.replace("_", " ")
    value = "no figure" if mean is None else f"{mean.value:.3g} {unit}"
    return Finding(
        instrument="distance",
        verdict=verdict,
        why=f"{reason}: {label} {value} over {len(values):,} questions",
        smallest_loss=smallest,
        loss_unit=unit,
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


def _differences(
    comparison: Comparison, able: Sequence[str], answers: Mapping[str, Answer], difference: Difference
) -> list[float]:
    found = [difference(comparison.baseline[key], answers[key]) for key in able if key in answers]
    return [value for value in found if value is not None]


def _interval(values: Sequence[float], confidence: float, shown: Callable[[float], float]) -> Interval | None:
    """Mean with its interval; None without any value."""
    if not values:
        return None
    mean, low, high = skewed_mean(values, confidence)
    return Interval(shown(mean), None if low is None else shown(low), None if high is None else shown(high))


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


def _per_token(baseline: Answer, candidate: Answer) -> float | None:
    """How much less likely the candidate makes a text, in nats per token; None if the texts or tokens are not equal."""
    if baseline.text_logprob is None or candidate.text_logprob is None or not baseline.text_tokens:
        return None
    if baseline.text_tokens != candidate.text_tokens:
        return None
    value = (baseline.text_logprob - candidate.text_logprob) / baseline.text_tokens
    return value if math.isfinite(value) else None


def _percent(mean: float) -> float:
    return 100 * math.expm1(mean)


INSTRUMENTS.register("distance", Distance())
