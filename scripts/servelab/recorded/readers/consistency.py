"""Contradictions between the figures of a block, as far as their printed digits show them.

A printed figure stands for every value that rounds to it, its *range*. A rule is broken only if no values in the ranges
fulfil it, so a correct block is never refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

Key = tuple[str, str]
"""Metric and statistic."""
_TERM = re.compile(r"\s*([×/]?)\s*(\([^)]*\)|[^×/()]+)")
_WITHIN = re.compile(r"(.*) within (\d+) %")


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


def total(of: Ranges, amounts: Iterable[str]) -> ValueRange:
    """The sum of some amounts."""
    return sum((of[name] for name in amounts), ValueRange(0.0, 0.0))


def computed(formula: str, of: Ranges) -> ValueRange:
    """The value of products and quotients of sums, perhaps `within … %`; `KeyError` if a figure is missing."""
    loose = _WITHIN.fullmatch(formula)
    found = ValueRange(1.0, 1.0)
    for sign, term in _TERM.findall(loose[1] if loose else formula):
        part = total(of, (name.strip() for name in term.strip(" ()").split("+")))
        found = found / part if sign == "/" else found * part
    share = 1 + float(loose[2]) / 100 if loose else 1.0
    return found * ValueRange(1 / share, share)


def by_name(ranges: Mapping[Key, ValueRange]) -> dict[str, ValueRange]:
    """The ranges under the names that formulas have."""
    return {metric if each == "value" else f"{each} {metric}": value for (metric, each), value in ranges.items()}


def contradiction(
    ranges: Mapping[Key, ValueRange], rules: Iterable[str], within_run: Iterable[str]
) -> tuple[Key, str] | None:
    """The first figure that contradicts others, and how; None if all agree. Figures without a value do not count.

    A rule is `metric = formula`. `within_run` are latencies that lie within the duration; TTFT of a request is then no
    more than its E2EL.
    """
    of = by_name(ranges)
    for rule in rules:
        metric, _, formula = rule.partition(" = ")
        try:
            must = computed(formula, of)
        except KeyError:
            continue
        if metric in of and not of[metric].meets(must):
            return (metric, "value"), f"{metric} is {of[metric]}, but {formula} is {must}"
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
