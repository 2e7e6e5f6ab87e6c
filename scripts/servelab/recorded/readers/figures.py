"""Figures as tools print them: names, statistics, units, and contradictions between those of a block.

A printed figure represents every value that rounds to it, its *range*. A rule is broken only if no values in the ranges
fulfil it, so a correct block is never refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from servelab.recorded.readers.pieces import Piece

VALUE = "value"
"""Statistic of a figure that is one number: a count, a rate, a duration."""
_NAMED = {
    **dict.fromkeys(("Mean", "mean", "avg", "ave", "Average", "AVERAGE"), "mean"),
    **dict.fromkeys(("Median", "median", "Mdn", "p50", "P50", "50%", "50"), "median"),
    **dict.fromkeys(("Std Dev", "std", "std_dev"), "std"),
    **dict.fromkeys(("Min", "min", "MINIMUM"), "minimum"),
    **dict.fromkeys(("Max", "max", "MAXIMUM"), "maximum"),
}
"""A statistic's name in the tools → ours."""
_PERCENTILE = re.compile(r"[Pp](\d{1,3}(?:\.\d{1,12})?)|(\d{1,3}(?:\.\d{1,12})?)%")
NUMBER = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.(?P<decimals>\d+))?%?")
ABSENT = frozenset({"N/A", "nan", "None", "not set", "-"})
_UNITS: Mapping[str, Mapping[str, float]] = {
    "_ms": {"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1000, "s": 1000},
    "_per_s": dict.fromkeys(("requests/sec", "tokens/sec", "per sec", "req/s", "token/s", ""), 1),
    "_s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1},
    "": {"requests": 1, "tokens": 1, "count": 1, "": 1},
}
"""End of a metric's name → unit in a tool → factor."""
_EXACT = 1e-7
"""Relative width of a figure saved with all its digits."""
_MOST_INTEGER = 10**300
Key = tuple[str, str]
"""Metric and statistic."""


class PrintedFigure(NamedTuple):
    """One number of a block."""

    metric: str
    """Name in docs/reference/metrics.md if it has one, unit in the name."""
    statistic: str
    """`value`, or `mean`, `std`, `minimum`, `median`, `p99`, …, `maximum` as in `schemas.METRICS`."""
    value: float | None
    """None if the tool printed that it has no value."""
    line: int
    """Line in the file, from 1."""
    half_unit: float = 0.0
    """Half a unit of its last printed digit: what rounding can have changed."""


@dataclass(frozen=True)
class FigureForm:
    """The metric behind a name, and how its tool writes it."""

    metric: str
    decimals: int | None = None
    """Digits after the point, which distinguish a complete number from one cut off; None if they vary."""
    factor: float = 1
    """From the tool's unit to the metric's."""
    statistic: str = VALUE
    releases: str | None = None
    """Releases that write it, `>=…` or `<…`; None if all do."""

    @classmethod
    def parsed(cls, row: str) -> FigureForm:
        """From a row of a table: `e2el_ms, any, ×1000, mean, >=1.10.0`; what follows the metric may be left out."""
        metric, *parts = (part.strip(' "') for part in row.split(", "))
        facts: dict[str, Any] = {}
        for part in parts:
            if part[0] in "<>":
                facts["releases"] = part
            elif part[0] == "×":
                facts["factor"] = float(part[1:])
            elif part.isdigit():
                facts["decimals"] = int(part)
            elif part != "any":
                facts["statistic"] = part
        return cls(metric, **facts)

    def in_unit(self, unit: str) -> FigureForm | None:
        """The form of a name with a unit behind it; None if the metric cannot have that unit."""
        units = next(units for end, units in _UNITS.items() if self.metric.endswith(end))
        decimals = 0 if unit == "ns" and self.decimals else self.decimals
        return replace(self, factor=units[unit], decimals=decimals) if unit in units else None


@lru_cache(maxsize=1024)
def statistic_of(name: str) -> str | None:
    """Our name of a statistic that a tool names; None if it is none."""
    match = _PERCENTILE.fullmatch(name)
    if name in _NAMED or match is None:
        return _NAMED.get(name)
    digits = match[1] or match[2]
    return f"p{digits}" if float(digits) <= 100 else None


@dataclass(frozen=True)
class ValueRange:
    """A number, and the range in which it lies: by rounding, or by the numbers that it is computed from."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, half_width: float = 0.0) -> ValueRange:
        """A number that is not negative, whose last digit is worth twice `half_width`; slack for binary fractions."""
        slack = half_width + abs(value) * 1e-9
        return cls(value, max(0.0, value - slack), value + slack)

    def meets(self, other: ValueRange) -> bool:
        """Whether the ranges have a number in common."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: ValueRange) -> ValueRange:
        return ValueRange(self.value + other.value, self.low + other.low, self.high + other.high)

    def __mul__(self, other: ValueRange) -> ValueRange:
        return ValueRange(self.value * other.value, self.low * other.low, self.high * other.high)

    def __truediv__(self, other: ValueRange) -> ValueRange:
        low = self.low / other.high if other.high else 0.0
        pairs = (self.value, other.value), (self.high, other.low)
        value, high = (each / by if by else math.inf for each, by in pairs)
        return ValueRange(value, low, high)

    def __str__(self) -> str:
        return f"{self.value:.10g}"


class Figures:
    """The figures of a block, as they are found."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.figures: dict[Key, PrintedFigure] = {}
        self.ranges: dict[Key, ValueRange] = {}
        self.warnings: list[str] = []

    def add(self, name: str, value: Any, line: int, form: FigureForm, statistic: str) -> None:
        """Adds a figure; `ReadError` if its value is no number as its tool writes it, or contradicts another."""
        key = (form.metric, statistic)
        if value is None or (isinstance(value, str) and value in ABSENT) or value != value:
            self.figures[key] = PrintedFigure(*key, None, line)
            self.warnings.append(f"line {line}: `{name}` has no value")
            return
        try:
            number, half_unit = _number(value, form)
        except ValueError as error:
            raise self.piece.error(f"`{name}` {error}", line) from None
        each = ValueRange.around(number, half_unit + _EXACT * number)
        if key in self.ranges and not self.ranges[key].meets(each):
            raise self.piece.error(f"the result contradicts itself: `{name}` is a second {statistic} of {key[0]}", line)
        self.figures[key] = PrintedFigure(*key, number, line, half_unit)
        self.ranges[key] = each


def _number(value: Any, form: FigureForm) -> tuple[float, float]:
    """The value in the metric's unit, converted as a decimal, and half a unit of its last printed digit.

    `ValueError` if it is no number as the tool writes it.
    """
    half_unit = 0.0
    if isinstance(value, str):
        match = NUMBER.fullmatch(value)
        printed = (match["decimals"] or "") if match else ""
        digits = 0 if form.decimals == 0 and not printed.strip("0") else len(printed)
        varies = form.decimals is None
        if match is None or (varies and "," in value) or not (varies or digits == form.decimals):
            kind = "a number" if varies else f"a number with {form.decimals} decimals"
            raise ValueError(f"is `{value}`, not {kind} as the tool prints it")
        if value[0] == "-" and value.strip("-0.%"):
            raise ValueError(f"cannot be negative: {value}")
        value = value.strip("-%").replace(",", "")  # a time that rounds to zero is printed as -0.00
        half_unit = 0.0 if form.decimals == 0 else 0.5 * 10.0**-digits * form.factor
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"is not a number: {value!r}")
    elif not 0 <= value <= _MOST_INTEGER:
        raise ValueError(f"cannot be {value:.3g}" if value < _MOST_INTEGER else "is too large")
    number = float(value) if form.factor == 1 else float(Decimal(str(value)) * Decimal(repr(form.factor)))
    if not math.isfinite(number):
        raise ValueError(f"has {len(value):,} digits")
    return number, half_unit


Ranges = Mapping[str, ValueRange]
"""Metric → its range; a statistic comes before the metric, as in `mean e2el_ms`."""
_TERM = re.compile(r"\s*([×/]?)\s*(\([^)]*\)|[^×/()]+)")
_WITHIN = re.compile(r"(.*) within (\d+) %")


def total(of: Ranges, amounts: Iterable[str]) -> ValueRange:
    """The sum of some amounts."""
    return sum((of[name] for name in amounts), ValueRange(0.0, 0.0, 0.0))


def by_name(ranges: Mapping[Key, ValueRange]) -> dict[str, ValueRange]:
    """The ranges under the names that formulas have."""
    return {metric if each == VALUE else f"{each} {metric}": value for (metric, each), value in ranges.items()}


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
        must = _computed(formula, of)
        if must and metric in of and not of[metric].meets(must):
            return (metric, VALUE), f"{metric} is {of[metric]}, but {formula} is {must}"
    of_requests = [key for key in ranges if key[1] != "std" and key[0] in within_run]
    in_order = [(key, ("e2el_ms", key[1])) for key in ranges if within_run and key[0] == "ttft_ms" and key[1] != "std"]
    for low, high in (*_in_order(ranges), *in_order):
        if low in ranges and high in ranges and ranges[low].low > ranges[high].high:
            return low, f"{_name(low)} ({ranges[low]}) exceeds {_name(high)} ({ranges[high]})"
    duration = of.get("duration_s")
    for key in of_requests if duration else ():
        if duration and ranges[key].low > 1000 * duration.high:
            return key, f"{_name(key)} ({ranges[key]}) is longer than the run's {duration} s"
    return None


def _computed(formula: str, of: Ranges) -> ValueRange | None:
    """The value of products and quotients of sums, perhaps `within … %`; None if a figure is missing."""
    loose = _WITHIN.fullmatch(formula)
    found = ValueRange(1.0, 1.0, 1.0)
    for sign, term in _TERM.findall(loose[1] if loose else formula):
        names = [name.strip() for name in term.strip(" ()").split("+")]
        if not of.keys() >= set(names):
            return None
        found = found / total(of, names) if sign == "/" else found * total(of, names)
    share = 1 + float(loose[2]) / 100 if loose else 1.0
    return found * ValueRange(1.0, 1 / share, share)


def _name(key: Key) -> str:
    return key[0] if key[1] == VALUE else f"{key[1]} of {key[0]}"


def _in_order(ranges: Iterable[Key]) -> Iterator[tuple[Key, Key]]:
    """Pairs of statistics of a metric, the smaller first."""
    by_metric: dict[str, list[tuple[float, str]]] = {}
    for metric, statistic in ranges:
        rank = {"minimum": "p0", "median": "p50", "maximum": "p100"}.get(statistic, statistic)
        if re.fullmatch(r"p\d+(\.\d+)?", rank):
            by_metric.setdefault(metric, []).append((float(rank[1:]), statistic))
    for metric, ranks in by_metric.items():
        yield from (((metric, low), (metric, high)) for (_, low), (_, high) in pairwise(sorted(ranks)))
        yield (metric, "mean"), (metric, "maximum")
        yield (metric, "minimum"), (metric, "mean")
