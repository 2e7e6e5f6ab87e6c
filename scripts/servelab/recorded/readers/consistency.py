"""Contradictions between the figures of a block, as far as their printed digits show them.

A printed figure represents every value that rounds to it, its *range*. A rule is broken only if no values in the ranges
fulfil it, so a correct block is never refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

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

    def __str__(self) -> str:
        return f"{(self.low + self.high) / 2:.10g}"


Ranges = Mapping[str, ValueRange]
"""Metric → its range; a statistic comes before the metric, as in `mean e2el_ms`."""


class Rule(NamedTuple):
    """`metric` is `of` other figures by the tool's definition; `of` raises `KeyError` if the block lacks one."""

    metric: str
    formula: str
    of: Callable[[Ranges], ValueRange]


def rate(metric: str, *amounts: str) -> Rule:
    """`metric` is the sum of some amounts over the duration."""
    return Rule(metric, f"({' + '.join(amounts)}) / duration_s", lambda of: total(of, amounts) / of["duration_s"])


def total(of: Ranges, amounts: Iterable[str]) -> ValueRange:
    """The sum of some amounts."""
    return sum((of[name] for name in amounts), ValueRange(0.0, 0.0))


def same_window(metric: str, *amounts: str) -> Rule:
    """`metric` is the sum of some amounts over the same, unknown time as `requests_per_s`."""
    return Rule(
        metric,
        f"requests_per_s × ({' + '.join(amounts)}) / requests_completed",
        lambda of: of["requests_per_s"] * total(of, amounts) / of["requests_completed"],
    )


REQUEST_RATE = rate("requests_per_s", "requests_completed")
TOKEN_RATES = (
    REQUEST_RATE,
    rate("input_tokens_per_s", "input_tokens"),
    rate("output_tokens_per_s", "output_tokens"),
    rate("total_tokens_per_s", "input_tokens", "output_tokens"),
)
"""Rates over the duration, as vLLM, SGLang and TensorRT-LLM define them."""
MEAN_TOKENS_RATE = Rule(
    "output_tokens_per_s",
    "requests_per_s × mean of output_tokens_per_request",
    lambda of: of["requests_per_s"] * of["mean output_tokens_per_request"],
)
REQUESTS = Rule(
    "requests", "requests_completed + requests_failed", lambda of: of["requests_completed"] + of["requests_failed"]
)
TOKEN_RATIO = Rule(
    "total_tokens_per_s",
    "output_tokens_per_s × (input_tokens + output_tokens) / output_tokens",
    lambda of: (
        of["output_tokens_per_s"]
        * (of["input_tokens"] + of["output_tokens"])
        / of["output_tokens"]
        * ValueRange(0.99, 1.01)
    ),
)
"""guidellm's rates of output tokens and of all tokens are over the same, unknown time; to 1 %."""
LOOSE_REQUESTS = Rule(
    "requests_per_s",
    "about requests_completed / duration_s",
    lambda of: of["requests_completed"] / of["duration_s"] * ValueRange(1 / 1.5, 1.5),
)
"""guidellm's request rate is a mean over time: not the number over the duration, but close to it."""


def contradiction(
    ranges: Mapping[Key, ValueRange], rules: Iterable[Rule], within_run: Iterable[str]
) -> tuple[Key, str] | None:
    """The first figure that contradicts others, and how; None if all agree. Figures without a value do not count.

    `within_run` are latencies that lie within the duration; TTFT of a request is then no more than its E2EL.
    """
    of = {
        metric if statistic == "value" else f"{statistic} {metric}": each
        for (metric, statistic), each in ranges.items()
    }
    for rule in rules:
        try:
            must = rule.of(of)
        except KeyError:
            continue
        if rule.metric in of and not of[rule.metric].meets(must):
            return (rule.metric, "value"), f"{rule.metric} is {of[rule.metric]}, but {rule.formula} is {must}"
    for low, high in (*_in_order(ranges), *_within(ranges, within_run)):
        if low in ranges and high in ranges and ranges[low].low > ranges[high].high:
            return low, f"{_name(low)} ({ranges[low]}) exceeds {_name(high)} ({ranges[high]})"
    duration = of.get("duration_s")
    for key, each in ranges.items():
        if duration and key[0] in within_run and key[1] != "std" and each.low > 1000 * duration.high:
            return key, f"{_name(key)} ({each}) is longer than the run's {duration} s"
    return None


def _name(key: Key) -> str:
    return key[0] if key[1] == "value" else f"{key[1]} of {key[0]}"


def _in_order(ranges: Iterable[Key]) -> Iterator[tuple[Key, Key]]:
    """Pairs of statistics of a metric, the smaller first."""
    by_metric: dict[str, list[tuple[float, str]]] = {}
    for metric, statistic in ranges:
        if (rank := _rank(statistic)) is not None:
            by_metric.setdefault(metric, []).append((rank, statistic))
    for metric, ranks in by_metric.items():
        yield from (((metric, low), (metric, high)) for (_, low), (_, high) in pairwise(sorted(ranks)))
        yield (metric, "mean"), (metric, "maximum")
        yield (metric, "minimum"), (metric, "mean")


def _within(ranges: Iterable[Key], within_run: Iterable[str]) -> Iterator[tuple[Key, Key]]:
    if within_run:
        yield from (
            (("ttft_ms", each), ("e2el_ms", each)) for metric, each in ranges if metric == "ttft_ms" and each != "std"
        )


@lru_cache(maxsize=1024)
def _rank(statistic: str) -> float | None:
    fixed = {"minimum": 0.0, "median": 50.0, "maximum": 100.0}
    percentile = re.fullmatch(r"p(\d+(?:\.\d+)?)", statistic)
    return float(percentile[1]) if percentile else fixed.get(statistic)
