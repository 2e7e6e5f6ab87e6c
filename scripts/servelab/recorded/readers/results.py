"""What every reader is: a table of the names that its tool writes, and how a piece is read by it into a block."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from servelab.core.registry import Registry
from servelab.recorded.readers.consistency import Key, Rule, ValueRange, contradiction
from servelab.recorded.readers.pieces import SECTION, Piece

VALUE = "value"
"""Statistic of a figure that is one number: a count, a rate, a duration."""
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
STATISTICS = {
    "mean": ("Mean", "mean", "avg", "Average", "AVERAGE"),
    "median": ("Median", "median", "Mdn", "p50", "P50", "50%"),
    "std": ("Std Dev", "std", "std_dev"),
    "minimum": ("Min", "min", "MINIMUM"),
    "maximum": ("Max", "max", "MAXIMUM"),
}
"""Our statistic → its names in the tools."""
_NAMED = {name: ours for ours, names in STATISTICS.items() for name in names}
_PERCENTILE = re.compile(r"[Pp](\d{1,3}(?:\.\d{1,12})?)|(\d{1,3}(?:\.\d{1,12})?)%")
_FAMILY = re.compile(r"([Mm]ean|[Mm]edian|Std Dev|std|[Mm]in|[Mm]ax|[Pp]\d{1,3}(?:\.\d{1,12})?)[ _](\S.*)")
_NUMBER = re.compile(r"(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.(?P<decimals>\d+))?%?")
_ABSENT = frozenset({"N/A", "nan", "None", "not set"})
_NO_LIMIT = re.compile(r"-1(?:\.0+)?")
_ELISION = re.compile(r"[\[(<]?\s*(?:\.{3,}|…)\s*[\])>]?")
_EXACT = 1e-7
"""Relative width of a figure saved with all its digits."""
_MOST_INTEGER = 10**300
_MOST_SETTING, _MOST_BRACKETS = 4096, 64


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


class UnknownLine(NamedTuple):
    """A line, key or row that the reader does not know."""

    line: int
    text: str


@dataclass(frozen=True)
class Block:
    """The figures of one run of a load client."""

    tool: str
    tool_version: str | None
    """The release, or the range that its lines imply, as in `>=0.11.1,<0.13.0`; None if unknown."""
    file: str
    first_line: int
    last_line: int
    figures: tuple[PrintedFigure, ...]
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Metric → how the tool's definition differs from docs/reference/metrics.md."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the tool reports of the load it sent: `max_concurrency`, `request_rate_per_s`, `backend`, …"""
    unknown: tuple[UnknownLine, ...] = ()
    warnings: tuple[str, ...] = ()

    def value(self, metric: str, statistic: str = VALUE) -> float | None:
        """A figure; None if the block lacks it."""
        return next((f.value for f in self.figures if (f.metric, f.statistic) == (metric, statistic)), None)

    def metrics(self) -> dict[str, dict[str, float | None]]:
        """Metric → statistic → value."""
        nested: dict[str, dict[str, float | None]] = {}
        for figure in self.figures:
            nested.setdefault(figure.metric, {})[figure.statistic] = figure.value
        return nested


class FigureForm(NamedTuple):
    """The metric behind a name, and how its tool writes it."""

    metric: str
    decimals: int | None = 2
    """Digits after the point, which distinguish a complete number from one cut off; None if they vary."""
    factor: float = 1
    """From the tool's unit to the metric's."""
    statistic: str = VALUE


class Entry(NamedTuple):
    """A name and its value in a piece."""

    name: str
    value: Any
    """A text as printed, or a value of JSON."""
    line: int
    statistic: str | None = None
    """Where a column gives it, not the name."""
    raw: str = ""
    """The whole line, shown if no reader knows it."""


class ToolRun(NamedTuple):
    """What a piece says of one run."""

    entries: Iterable[Entry]
    settings: Mapping[str, Any] = {}
    version: str | None = None
    line: int | None = None
    """Its line, if the run is one line of the piece."""
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def statistic_of(name: str) -> str | None:
    """Our name of a statistic that a tool names; None if it is none."""
    match = _PERCENTILE.fullmatch(name)
    if name in _NAMED or match is None:
        return _NAMED.get(name)
    digits = match[1] or match[2]
    return f"p{digits}" if float(digits) <= 100 else None


def console_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of a console block."""
    yield ToolRun(Entry(row.label, row.text, row.line, raw=row.raw) for row in piece.rows)


def document_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of a JSON object whose keys are figures, settings, and lists with one entry per request."""
    settings: dict[str, Any] = {}
    entries = []
    for key, value in piece.document.items():
        figure = reader.find(key)
        if figure is not None and (value is not None or figure[1] != VALUE):
            if isinstance(value, str):
                raise piece.error(f"`{key}` is not a number: {value!r}")
            entries.append(Entry(key, value, piece.first_line))
        elif figure is None and (key in reader.settings or value is None or isinstance(value, str | bool)):
            infinite = isinstance(value, float) and math.isinf(value)
            settings[reader.settings.get(key, key)] = "inf" if infinite else value
        elif figure is None:
            entries.append(unknown_entry(piece, key, value))
    yield ToolRun(entries, settings)


def unknown_entry(piece: Piece, key: str, value: Any) -> Entry:
    """An entry of a document that no reader may know, kept whole."""
    return Entry(key, value, piece.first_line, raw=f"{key}: {json.dumps(value, ensure_ascii=False)}")


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads the pieces of one form of one tool by a table of the names that the tool writes."""

    tool: str
    form: str
    """Of its pieces: `console`, `json`, `csv`, `grid` (tables of a log) or `frame`."""
    markers: frozenset[str]
    """Names (labels of lines, keys, metrics of rows) that every piece of the tool has, and few others."""
    following: tuple[frozenset[str], ...] = ()
    """Names in the tables that may follow the first of a result."""
    figures: Mapping[str, FigureForm]
    """Name → figure."""
    families: Mapping[str, FigureForm] = field(default_factory=dict)
    """What follows `Mean`, `p99_`, … in a name, or the name of a row with a column for each statistic → figure."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Name → name among the settings."""
    ignored: frozenset[str] = frozenset()
    """Headings, and keys with one entry per request."""
    required: tuple[str, ...]
    """Metrics that every result has, in order."""
    percentiles: frozenset[str] | None = None
    """Percentiles that a console block has; None if the user chooses."""
    partial: frozenset[str] = frozenset()
    """Families of a console block without mean or median."""
    rules: tuple[Rule, ...] = ()
    within_run: tuple[str, ...] = ()
    """Latencies that lie within the duration."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    releases: Mapping[str, str] = field(default_factory=dict)
    """Name → releases that write it, `>=…` or `<…`."""
    may_be_abbreviated: bool = False
    """Whether pages shorten its blocks: then what is missing of what it always prints is a warning."""
    runs: Callable[[Reader, Piece], Iterable[ToolRun]] = console_runs

    def find(self, name: str, statistic: str | None = None) -> tuple[FigureForm, str] | None:
        """The figure of a name and its statistic; None if its tool writes no figure under it."""
        if statistic is not None:
            return (self.families[name], statistic) if name in self.families else None
        if name in self.figures:
            return self.figures[name], self.figures[name].statistic
        match = _FAMILY.fullmatch(name)
        if match is None or match[2] not in self.families or (found := statistic_of(match[1])) is None:
            return None
        is_other = self.percentiles is not None and found[0] == "p" and found not in self.percentiles
        return None if is_other else (self.families[match[2]], found)

    def knows(self, name: str) -> bool:
        """Whether its tool writes such a name."""
        return name in self.ignored or (name in self.settings and self.form != "json") or self.find(name) is not None

    def read(self, piece: Piece) -> list[Block]:
        """Its blocks; `ReadError` if it is broken."""
        return [self._block(piece, run) for run in self.runs(self, piece)]

    def _block(self, piece: Piece, run: ToolRun) -> Block:
        found = _Figures(piece)
        settings = dict(run.settings)
        seen, unknown = self._add_entries(run, found, settings)
        missing = list(self._missing(found.figures))
        if missing and not (self.may_be_abbreviated and self.required[0] not in missing):
            raise piece.error(f"the line of {missing[0]} is missing: the result is cut off")
        wrong = contradiction(found.ranges, self.rules, self.within_run)
        if wrong is not None:
            raise piece.error(f"the result contradicts itself: {wrong[1]}", found.figures[wrong[0]].line)
        warnings = [*run.warnings, *found.warnings]
        warnings += [f"line {line}: not read, unknown: {text[:200]}" for line, text in unknown]
        warnings += [f"abbreviated: without {', '.join(missing)}"] if missing else []
        present = {metric for metric, _ in found.ranges}
        return Block(
            tool=self.tool,
            tool_version=run.version or self.version or self._release(seen),
            file=piece.file,
            first_line=run.line or piece.first_line,
            last_line=run.line or piece.last_line,
            figures=tuple(found.figures.values()),
            definitions={metric: text for metric, text in self.definitions.items() if metric in present},
            settings={name: _plain(value) for name, value in settings.items()},
            unknown=tuple(unknown),
            warnings=(*warnings, *_odd(found.ranges)),
        )

    def _add_entries(
        self, run: ToolRun, found: _Figures, settings: dict[str, Any]
    ) -> tuple[list[str], list[UnknownLine]]:
        """Adds each figure and setting; the names that its tool writes, and the lines that it does not."""
        lines: dict[tuple[str, str | None], int] = {}
        unknown = []
        for name, value, line, statistic, raw in run.entries:
            figure = self.find(name, statistic)
            if figure or name in self.settings or name in self.ignored:
                if (name, statistic) in lines:
                    text = f"`{name}` occurs twice, first in line {lines[name, statistic]}"
                    raise found.piece.error(text, line)
                lines[name, statistic] = line
            if figure:
                found.add(name, value, line, *figure)
            elif name in self.settings:
                settings[self.settings[name]] = _setting(found.piece, name, value, line)
            elif not (name in self.ignored or SECTION.fullmatch(raw) or self._elides(raw)):
                unknown.append(UnknownLine(line, raw))
        return [name for name, _ in lines], unknown

    def _elides(self, raw: str) -> bool:
        return self.may_be_abbreviated and _ELISION.fullmatch(raw) is not None

    def _missing(self, found: Mapping[Key, PrintedFigure]) -> Iterator[str]:
        metrics = {metric for metric, _ in found}
        yield from (metric for metric in self.required if metric not in metrics)
        if self.form == "console":
            for name, form in self.families.items():
                if form.metric in metrics and name not in self.partial:
                    pair = ("mean", "median")
                    yield from (f"{each} of {form.metric}" for each in pair if (form.metric, each) not in found)

    def _release(self, names: Iterable[str]) -> str | None:
        found = dict.fromkeys(self.releases[name] for name in names if name in self.releases)
        lowest = [each for each in found if each.startswith(">=")]
        newest = max(lowest, key=lambda each: [int(part) for part in each[2:].split(".")], default=None)
        return ",".join([each for each in [newest] if each] + [each for each in found if each[0] == "<"]) or None


READERS: Registry[Reader] = Registry("reader")


class _Figures:
    """The figures of a block, as they are found."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.figures: dict[Key, PrintedFigure] = {}
        self.ranges: dict[Key, ValueRange] = {}
        self.warnings: list[str] = []

    def add(self, name: str, value: Any, line: int, form: FigureForm, statistic: str) -> None:
        """Adds a figure; `ReadError` if its value is no number as its tool writes it, or contradicts another."""
        key = (form.metric, statistic)
        if value is None or (isinstance(value, str) and value in _ABSENT) or value != value:
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
            match = _NUMBER.fullmatch(value)
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


def _setting(piece: Piece, name: str, value: Any, line: int) -> Any:
    if value == "":
        raise piece.error(f"`{name}` has no value; the line is cut off", line)
    if not isinstance(value, str):
        return value
    if value in _ABSENT or _NO_LIMIT.fullmatch(value):
        return None
    number = float(value.replace(",", "")) if _NUMBER.fullmatch(value) and value[-1] != "%" else math.inf
    return number if math.isfinite(number) else value


def _plain(value: Any) -> Any:
    """A setting as JSON can hold it, or the start of its text: a hostile one is no number, large, or deeply nested."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    is_small = len(text) <= _MOST_SETTING and sum(map(text.count, "[{")) <= _MOST_BRACKETS and "NaN" not in text
    return value if is_small and "Infinity" not in text else text[:_MOST_SETTING]


def _odd(ranges: Mapping[Key, ValueRange]) -> Iterator[str]:
    """Warnings about figures that tools print but no server can reach."""
    for (metric, statistic), each in ranges.items():
        if statistic in ("mean", "median") and metric in ("ttft_ms", "e2el_ms") and each.low == 0:
            yield f"{statistic} of {metric} is 0: the tool did not see when the tokens arrived"
