"""Figures as tools print them: names, statistics, units, formulas, and contradictions between those of a block.

A printed figure stands for every value that rounds to it, its *range*. A rule is broken only if no values in the ranges
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

from servelab.metrics.definitions import METRICS
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
ABSENT = frozenset({"N/A", "nan", "None", "not set"})
_UNITS: Mapping[str, Mapping[str, float]] = {
    "_ms": {"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1000, "s": 1000},
    "_per_s": {"requests/sec": 1, "tokens/sec": 1, "per sec": 1, "": 1},
    "_s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1},
    "": {"requests": 1, "tokens": 1, "count": 1, "": 1},
}
"""End of a metric's name → unit in a tool → factor."""
_EXACT = 1e-7
"""Relative width of a figure saved with all its digits."""
_MOST_INTEGER = 10**300


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
        number, half_unit = self._number(name, value, line, form)
        each = ValueRange.around(number, half_unit + _EXACT * number)
        if key in self.ranges and not self.ranges[key].meets(each):
            raise self.piece.error(f"the result contradicts itself: `{name}` is a second {statistic} of {key[0]}", line)
        self.figures[key] = PrintedFigure(*key, number, line, half_unit)
        self.ranges[key] = each

    def _number(self, name: str, value: Any, line: int, form: FigureForm) -> tuple[float, float]:
        """The value in the metric's unit, converted as a decimal, and half a unit of its last printed digit."""
        half_unit = 0.0
        if isinstance(value, str):
            match = NUMBER.fullmatch(value)
            digits = len(match["decimals"] or "") if match else 0
            varies = form.decimals is None
            if match is None or (varies and "," in value) or not (varies or digits == form.decimals):
                kind = "a number" if varies else f"a number with {form.decimals} decimals"
                raise self.piece.error(f"`{name}` is `{value}`, not {kind} as the tool prints it", line)
            if value[0] == "-" and value.strip("-0.%"):
                raise self.piece.error(f"`{name}` cannot be negative: {value}", line)
            value = value.strip("-%").replace(",", "")  # a time that rounds to zero is printed as -0.00
            half_unit = 0.0 if form.decimals == 0 else 0.5 * 10.0**-digits * form.factor
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise self.piece.error(f"`{name}` is not a number: {value!r}", line)
        elif value < 0 or value == math.inf or value > _MOST_INTEGER:
            raise self.piece.error(
                f"`{name}` cannot be {value:.3g}" if value < _MOST_INTEGER else f"`{name}` is too large", line
            )
        number = float(value) if form.factor == 1 else float(Decimal(str(value)) * Decimal(repr(form.factor)))
        if not math.isfinite(number):
            raise self.piece.error(f"`{name}` has {len(value):,} digits", line)
        return number, half_unit


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


def _computed(formula: str, of: Ranges) -> ValueRange:
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
            must = _computed(formula, of)
        except KeyError:
            continue
        if metric in of and not of[metric].meets(must):
            return (metric, "value"), f"{metric} is {of[metric]}, but {formula} is {must}"
    in_requests = [key[1] for key in ranges if key[0] == "ttft_ms" and key[1] != "std" and within_run]
    for low, high in (*_in_order(ranges), *((("ttft_ms", each), ("e2el_ms", each)) for each in in_requests)):
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


@lru_cache(maxsize=1024)
def _rank(statistic: str) -> float | None:
    fixed = {"minimum": 0.0, "median": 50.0, "maximum": 100.0}
    percentile = re.fullmatch(r"p(\d+(?:\.\d+)?)", statistic)
    return float(percentile[1]) if percentile else fixed.get(statistic)


_UNSURE = "unsure_per_output_token_ms"
"""A time per token that is the run's in some releases, and a mean over requests in others."""
_RUN_TIME = "run_time_per_output_token_ms"
_ONE = ValueRange(1.0, 1.0)
_THREE_DIGITS = 0.1
"""Milliseconds; half a unit of the third digit of a second is 0.5."""


class DefinedBy(NamedTuple):
    """How a tool defines a metric, where that differs from docs/reference/metrics.md."""

    text: str
    releases: str | None = None
    """Releases that define it so, `<…` or `>=…`; others as we do. None for all."""


class Formula(NamedTuple):
    """The formula of a figure."""

    id: str | None
    """A metric of docs/reference/metrics.md, or `tool:metric` for a definition of the tool's own; None if unknown."""
    releases: str | None
    """Releases of the tool that the figure may be from."""
    text: str


def formulas_of(
    tool: str, version: str | None, metrics: Iterable[str], definitions: Mapping[str, DefinedBy]
) -> dict[str, Formula]:
    """Metric → its formula, in a block from these releases of a tool."""
    found = {}
    for metric in metrics:
        own, ours = f"{tool}:{metric}", METRICS.get(metric).formula if metric in METRICS.names() else None
        defined = definitions.get(metric)
        if defined is None:
            found[metric] = Formula(metric, version, ours) if ours else Formula(own, version, f"as {tool} names it")
        elif (is_so := _is_within(version, defined.releases)) is None:
            text = f"{own} in releases {defined.releases}, else {metric}: the result does not say which it is from"
            found[metric] = Formula(None, version, text)
        else:
            found[metric] = Formula(own, version, defined.text) if is_so else Formula(metric, version, ours or "")
    return found


def narrowest(releases: Iterable[str | None]) -> str | None:
    """What is in all of some ranges of releases, as in `>=0.11.1,<0.13.0`."""
    parts = [part for each in releases if each for part in each.split(",")]
    low = max((part for part in parts if part[0] == ">"), key=_number, default=None)
    high = min((part for part in parts if part[0] == "<"), key=_number, default=None)
    return ",".join(each for each in (low, high) if each) or None


def _is_within(version: str | None, releases: str | None) -> bool | None:
    """Whether a release, or all of a range, is among releases `<…` or `>=…`; None if only a part of it is."""
    if releases is None:
        return True
    parts = (version or "").split(",")
    low = max((_number(part) for part in parts if part[:1] != "<"), default=[])
    high = min((_number(part) for part in parts if part[:1] != ">" and part), default=[10**6])
    edge, is_below = _number(releases), releases[0] == "<"
    if low >= edge:
        return not is_below
    is_one = not (version or "<").startswith(("<", ">"))
    return is_below if (high < edge if is_one else high <= edge) else None


def _number(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def what_they_are(
    figures: Mapping[Key, PrintedFigure], ranges: Mapping[Key, ValueRange], settings: Mapping[str, Any]
) -> tuple[dict[Key, PrintedFigure], list[str]]:
    """The figures under the names of what the block's own arithmetic shows them to be, and a note on each change."""
    found, notes = dict(figures), []
    done = figures.get(("requests_completed", VALUE))
    if done and done.value == 0:
        found |= {key: each._replace(value=None) for key, each in figures.items() if key[0].endswith("_ms")}
        notes.append("no request succeeded, so no latency was measured")
    if _is_not_streamed(found, by_name(ranges)):
        seen = {key for key, each in found.items() if each.value}
        silent = [key for key in found if key[0] == "ttft_ms" or (key[0] in ("tpot_ms", "itl_ms") and key not in seen)]
        found |= {key: found[key]._replace(value=None) for key in silent}
        notes.append("TTFT equals E2EL in every statistic: answers were not streamed, so nobody saw a first token")
    for key in [key for key in ((_UNSURE, "mean"), ("tpot_ms", "mean")) if key in found]:
        of_run = _is_of_the_run(key, ranges, settings)
        is_alone = sum(metric == key[0] for metric, _ in found) == 1
        is_exact = key[0] == _UNSURE and found[key].half_unit < _THREE_DIGITS  # as only the run's was printed
        if is_exact or (of_run and is_alone):
            found[_RUN_TIME, VALUE] = found.pop(key)._replace(metric=_RUN_TIME, statistic=VALUE)
            notes.append("a time per token × output tokens per second is 1: it is the run's, and no request's latency")
        elif key[0] == _UNSURE and of_run is None:
            notes.append(f"line {found.pop(key).line}: a time per token is not read: of the run, or a mean of requests")
        elif key[0] == _UNSURE:
            found["normalized_e2el_ms", "mean"] = found.pop(key)._replace(metric="normalized_e2el_ms")
    return found, notes


def _is_not_streamed(figures: Mapping[Key, PrintedFigure], of: Mapping[str, ValueRange]) -> bool:
    """Whether TTFT is E2EL in all statistics, of answers with more than one token."""
    first = {key[1]: each.value for key, each in figures.items() if key[0] == "ttft_ms" and each.value is not None}
    whole = {key[1]: each.value for key, each in figures.items() if key[0] == "e2el_ms" and each.value is not None}
    both = first.keys() & whole.keys()
    tokens, events = of.get("mean output_tokens_per_request"), of.get("mean events_per_request")
    if tokens is None and {"output_tokens", "requests_completed"} <= of.keys():
        tokens = of["output_tokens"] / of["requests_completed"]
    if tokens is not None and tokens.low <= 1.01:
        return False
    is_one_event = tokens is not None and events is not None and events.low <= 1
    return is_one_event or (bool(both) and all(first[name] == whole[name] and first[name] for name in both))


def _is_of_the_run(key: Key, ranges: Mapping[Key, ValueRange], settings: Mapping[str, Any]) -> bool | None:
    """Whether a time per token is 1 / throughput of several requests in flight; None if nothing shows it."""
    of = by_name(ranges)
    rate, latency, requests = (of.get(name) for name in ("output_tokens_per_s", "mean e2el_ms", "requests_per_s"))
    if rate is None and requests and (tokens := of.get("mean output_tokens_per_request")):
        rate = requests * tokens
    in_flight = settings.get("max_concurrency") or (latency and requests and latency.low * requests.low / 1000)
    if rate is None or not isinstance(in_flight, int | float):
        return None
    is_one = (ranges[key] * ValueRange(1e-3, 1e-3) * rate).meets(_ONE)
    return None if is_one and in_flight <= 1.5 else is_one
