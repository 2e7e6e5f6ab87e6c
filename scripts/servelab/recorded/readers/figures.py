"""Figures as tools print them: their names, statistics and units, and the range that a printed number stands for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from servelab.recorded.readers.consistency import Key, ValueRange
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
NUMBER = re.compile(r"(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.(?P<decimals>\d+))?%?")
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
            value = value.rstrip("%").replace(",", "")
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
