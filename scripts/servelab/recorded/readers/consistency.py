"""Relations that the figures of a block must fulfil, as far as their printed digits show.

A printed figure represents every value that rounds to it, a *span*. An equation is contradicted only if no values in
the spans fulfil it, so a correct block is never refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

Key = tuple[str, str]
"""Metric and statistic."""


@dataclass(frozen=True)
class ValueRange:
    """The range of values, none negative, that a figure may represent."""

    low: float
    high: float

    @classmethod
    def around(cls, value: float, half_width: float) -> ValueRange:
        """Values that round to `value`, whose last digit is worth twice `half_width`; slack for binary fractions."""
        slack = half_width + abs(value) * 1e-9
        return cls(max(0.0, value - slack), value + slack)

    def meets(self, other: ValueRange) -> bool:
        """Whether the two have a value in common."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: ValueRange) -> ValueRange:
        return ValueRange(self.low + other.low, self.high + other.high)

    def __mul__(self, other: ValueRange) -> ValueRange:
        return ValueRange(self.low * other.low, self.high * other.high)

    def __truediv__(self, other: ValueRange) -> ValueRange:
        low = self.low / other.high if other.high else 0.0
        return ValueRange(low, self.high / other.low if other.low else float("inf"))


@dataclass(frozen=True)
class Identity:
    """`result` equals `of(terms)` by the tool's definitions."""

    result: Key
    terms: tuple[Key, ...]
    of: Callable[..., ValueRange]
    formula: str


def value_of(metric: str) -> Key:
    """Key of a figure that is one number."""
    return (metric, "value")


def rate(metric: str, *amounts: str) -> Identity:
    """`metric` is the sum of some amounts over the duration."""

    def of(duration: ValueRange, first: ValueRange, *rest: ValueRange) -> ValueRange:
        return sum(rest, first) / duration

    keys = tuple(value_of(name) for name in ("duration_s", *amounts))
    return Identity(value_of(metric), keys, of, f"({' + '.join(amounts)}) / duration_s")


TOKEN_RATES = (
    rate("requests_per_s", "requests_completed"),
    rate("input_tokens_per_s", "input_tokens"),
    rate("output_tokens_per_s", "output_tokens"),
    rate("total_tokens_per_s", "input_tokens", "output_tokens"),
)
"""Rates over the duration, as vLLM, SGLang and TensorRT-LLM define them."""


def same_window(metric: str, *amounts: str) -> Identity:
    """`metric` is the sum of some amounts over the same, unknown time as `requests_per_s`."""

    def of(requests_per_s: ValueRange, completed: ValueRange, first: ValueRange, *rest: ValueRange) -> ValueRange:
        return requests_per_s * sum(rest, first) / completed

    keys = tuple(value_of(name) for name in ("requests_per_s", "requests_completed", *amounts))
    return Identity(value_of(metric), keys, of, f"requests_per_s × ({' + '.join(amounts)}) / requests_completed")


REQUESTS = Identity(
    value_of("requests"),
    (value_of("requests_completed"), value_of("requests_failed")),
    lambda completed, failed: completed + failed,
    "requests_completed + requests_failed",
)

_ROUGHLY = ValueRange(0.99, 1.01)

TOKEN_RATIO = Identity(
    value_of("total_tokens_per_s"),
    tuple(value_of(name) for name in ("output_tokens_per_s", "input_tokens", "output_tokens")),
    lambda rate, inputs, outputs: rate * (inputs + outputs) / outputs * _ROUGHLY,
    "output_tokens_per_s × (input_tokens + output_tokens) / output_tokens",
)
"""guidellm's rates of output tokens and of all tokens are over the same, unknown time; to 1 %."""

LOOSE_REQUESTS = Identity(
    value_of("requests_per_s"),
    tuple(value_of(name) for name in ("requests_completed", "duration_s")),
    lambda completed, duration: completed / duration * ValueRange(1 / 1.5, 1.5),
    "about requests_completed / duration_s",
)
"""guidellm's request rate is a mean over time: not the number over the duration, but close to it."""

_PARTS = (
    ("requests_completed", "requests"),
    ("requests_failed", "requests"),
    ("goodput_per_s", "requests_per_s"),
    ("accepted_tokens", "draft_tokens"),
)
"""A part, and the whole that it cannot exceed."""


def contradiction(spans: Mapping[Key, ValueRange], identities: tuple[Identity, ...]) -> tuple[Key, str] | None:
    """The first figure that contradicts others, and how; None if all agree. Figures without a value do not count."""
    for identity in identities:
        if identity.result in spans and all(term in spans for term in identity.terms):
            must = identity.of(*(spans[term] for term in identity.terms))
            if not spans[identity.result].meets(must):
                metric, statistic = identity.result
                name = metric if statistic == "value" else f"{statistic} of {metric}"
                return identity.result, (
                    f"{name} is {_show(spans[identity.result])}, but {identity.formula} is {_show(must)}"
                )
    for part, whole in _PARTS:
        keys = value_of(part), value_of(whole)
        if all(key in spans for key in keys) and spans[keys[0]].low > spans[keys[1]].high:
            return keys[0], f"{part} ({_show(spans[keys[0]])}) exceeds {whole} ({_show(spans[keys[1]])})"
    return _out_of_order(spans)


def times_within(spans: Mapping[Key, ValueRange], metrics: tuple[str, ...]) -> tuple[Key, str] | None:
    """The first latency in milliseconds that is longer than the whole run."""
    duration = spans.get(value_of("duration_s"))
    for (metric, statistic), span in spans.items():
        if duration and metric in metrics and statistic != "std" and span.low > 1000 * duration.high:
            return (metric, statistic), (
                f"{statistic} of {metric} ({_show(span)}) is longer than the run's {_show(duration)} s"
            )
    return None


def not_above(spans: Mapping[Key, ValueRange], part: str, whole: str) -> tuple[Key, str] | None:
    """The first statistic of a part of a request, such as TTFT, that exceeds the same statistic of the whole."""
    for (metric, statistic), span in spans.items():
        other = spans.get((whole, statistic))
        if metric == part and statistic != "std" and other and span.low > other.high:
            return (
                metric,
                statistic,
            ), f"{statistic} of {part} ({_show(span)}) exceeds that of {whole} ({_show(other)})"
    return None


def _out_of_order(spans: Mapping[Key, ValueRange]) -> tuple[Key, str] | None:
    """A percentile that exceeds a higher one, or a mean outside minimum and maximum."""
    by_metric: dict[str, list[tuple[float, Key]]] = {}
    for key in spans:
        ranks = by_metric.setdefault(key[0], [])
        if (rank := _rank(key[1])) is not None:
            ranks.append((rank, key))
    for metric, ranks in by_metric.items():
        ranked = sorted(ranks)
        for (_, lower), (_, upper) in pairwise(ranked):
            if spans[lower].low > spans[upper].high:
                return lower, (
                    f"{lower[1]} of {metric} ({_show(spans[lower])}) exceeds its {upper[1]} ({_show(spans[upper])})"
                )
        mean, least, most = (spans.get((metric, statistic)) for statistic in ("mean", "minimum", "maximum"))
        if mean and most and mean.low > most.high:
            return (metric, "mean"), f"mean of {metric} ({_show(mean)}) exceeds its maximum ({_show(most)})"
        if mean and least and mean.high < least.low:
            return (metric, "mean"), f"mean of {metric} ({_show(mean)}) is below its minimum ({_show(least)})"
    return None


@lru_cache(maxsize=1024)
def _rank(statistic: str) -> float | None:
    fixed = {"minimum": 0.0, "median": 50.0, "maximum": 100.0}
    percentile = re.fullmatch(r"p(\d+(?:\.\d+)?)", statistic)
    return float(percentile[1]) if percentile else fixed.get(statistic)


def _show(span: ValueRange) -> str:
    middle = (span.low + span.high) / 2
    return f"{middle:.10g}"
