"""Reads console blocks: rows of `label: number`, in the form of `vllm bench serve` and tools derived from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache

from servelab.recorded import readers
from servelab.recorded.readers.consistency import Identity, Key, ValueRange, contradiction, not_above, times_within
from servelab.recorded.readers.pieces import SECTION, BlockRow, Piece

STATISTICS = {"Mean": "mean", "Median": "median", "Std Dev": "std", "Min": "minimum", "Max": "maximum"}
_FAMILY = re.compile(
    r"(?P<statistic>Mean|Median|Std Dev|Min|Max|P(?P<percentile>\d{1,3}(?:\.\d{1,12})?)) (?P<family>\S.*)"
)
_NUMBER = re.compile(r"(?P<whole>\d+|\d{1,3}(?:,\d{3})+)(?:\.(?P<decimals>\d+))?%?")
_ELISION = re.compile(r"[\[(<]?\s*(?:\.{3,}|…)\s*[\])>]?")
_ABSENT = {"N/A", "nan", "None", "not set"}


@dataclass(frozen=True)
class Number:
    """How a tool prints a figure, which distinguishes a complete number from one cut off at its end."""

    metric: str
    decimals: int = 2
    """Digits after the point."""
    factor: int = 1
    """From the printed unit to the metric's."""

    @property
    def half_unit(self) -> float:
        """Half a unit of the last digit in the metric's unit; 0 for a count, which is exact."""
        return 0.5 * 10.0**-self.decimals * self.factor if self.decimals else 0.0


def count(metric: str) -> Number:
    """A figure printed without a point."""
    return Number(metric, decimals=0)


@dataclass(frozen=True)
class ConsoleReader:
    """Reads a tool's console block. Labels have no colon here."""

    tool: str
    markers: frozenset[str]
    numbers: Mapping[str, Number]
    """Label → figure that is one number."""
    families: Mapping[str, Number]
    """What follows `Mean`, `P99`, … in a label → metric."""
    required: tuple[str, ...]
    """Labels that every block has."""
    definitions: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Label → name among the settings."""
    headings: frozenset[str] = frozenset()
    """Labels without a number."""
    percentiles: frozenset[str] | None = None
    """Percentiles that it prints; None if the user chooses."""
    identities: tuple[Identity, ...] = ()
    within_run: tuple[str, ...] = ()
    """Latencies that lie within the duration; TTFT of a request is then no more than its E2EL."""
    partial: frozenset[str] = frozenset()
    """Families without mean or median."""
    releases: Mapping[str, str] = field(default_factory=dict)
    """Label → releases that print it, `>=…` or `<…`."""
    may_be_abbreviated: bool = False
    """Whether pages shorten its blocks: then what is missing of what it always prints is a warning."""
    form: str = "console"

    def knows(self, name: str) -> bool:
        """Whether it prints such a label."""
        return name in self._fixed or self._statistic(name) is not None

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of a piece; `ReadError` if it is broken."""
        figures: dict[Key, readers.PrintedFigure] = {}
        spans: dict[Key, ValueRange] = {}
        settings: dict[str, str | float | None] = {}
        unknown: list[readers.UnknownLine] = []
        warnings: list[str] = []
        labels: dict[str, int] = {}
        for row in piece.rows:
            if row.label and self.knows(row.label):
                if row.label in labels:
                    raise _error(piece, row.line, f"`{row.label}` occurs twice, first in line {labels[row.label]}")
                labels[row.label] = row.line
            if row.label in self.settings:
                settings[self.settings[row.label]] = _setting(piece, row)
            elif row.label in self.headings and not row.text:
                continue
            elif (found := self._figure(row.label)) is not None:
                number, statistic = found
                value, span = _number(piece, row, number)
                key = (number.metric, statistic)
                if key in spans and span and not spans[key].meets(span):
                    raise _error(piece, row.line, f"the block contradicts itself: a second {statistic} of {key[0]}")
                figures[key] = readers.PrintedFigure(*key, value, row.line, number.half_unit)
                if span is None:
                    warnings.append(f"line {row.line}: `{row.label}` has no value ({row.text})")
                else:
                    spans[key] = span
            elif not SECTION.fullmatch(row.raw) and not (self.may_be_abbreviated and _ELISION.fullmatch(row.raw)):
                unknown.append(readers.UnknownLine(row.line, row.raw))
                warnings.append(f"line {row.line}: not read, unknown line: {row.raw}")
        missing = list(self._missing(labels))
        if missing and self.may_be_abbreviated and self.required[0] in labels:
            warnings.append(f"abbreviated: without {', '.join(f'`{label}`' for label in missing)}")
            missing = []
        for label in missing:
            raise _error(piece, piece.first_line, f"the block's line `{label}` is missing")
        self._check(piece, figures, spans)
        block = readers.Block(
            tool=self.tool,
            tool_version=",".join(dict.fromkeys(self._releases(labels))) or None,
            file=piece.file,
            first_line=piece.first_line,
            last_line=piece.last_line,
            figures=tuple(figures.values()),
            definitions={
                metric: text for metric, text in self.definitions.items() if metric in {m for m, _ in figures}
            },
            settings=settings,
            unknown=tuple(unknown),
            warnings=(*warnings, *_odd(spans)),
        )
        return [block]

    @cached_property
    def _fixed(self) -> frozenset[str]:
        return frozenset({*self.numbers, *self.settings, *self.headings})

    def _figure(self, label: str) -> tuple[Number, str] | None:
        return (self.numbers[label], readers.VALUE) if label in self.numbers else self._statistic(label)

    @cached_property
    def _statistic(self) -> Callable[[str], tuple[Number, str] | None]:
        return lru_cache(maxsize=1024)(self._find_statistic)  # a log has few labels, and many lines of each

    def _find_statistic(self, label: str) -> tuple[Number, str] | None:
        match = _FAMILY.fullmatch(label)
        if match is None or match["family"] not in self.families:
            return None
        if match["percentile"] is None:
            return self.families[match["family"]], STATISTICS[match["statistic"]]
        if float(match["percentile"]) > 100 or (self.percentiles and match["percentile"] not in self.percentiles):
            return None
        return self.families[match["family"]], "median" if match["percentile"] == "50" else f"p{match['percentile']}"

    def _missing(self, labels: Mapping[str, int]) -> Iterator[str]:
        yield from (label for label in self.required if label not in labels)
        seen = {match["family"] for label in labels if (match := _FAMILY.fullmatch(label))}
        for family in sorted(seen & self.families.keys() - self.partial):
            yield from (label for label in (f"Mean {family}", f"Median {family}") if label not in labels)

    def _releases(self, labels: Mapping[str, int]) -> Iterator[str]:
        found = [self.releases[label] for label in labels if label in self.releases]
        lowest = [release for release in found if release.startswith(">=")]
        if lowest:
            yield max(lowest, key=lambda release: [int(part) for part in release[2:].split(".")])
        yield from (release for release in found if release.startswith("<"))

    def _check(
        self, piece: Piece, figures: Mapping[Key, readers.PrintedFigure], spans: Mapping[Key, ValueRange]
    ) -> None:
        wrong = contradiction(spans, self.identities) or times_within(spans, self.within_run)
        if wrong is None and self.within_run:
            wrong = not_above(spans, "ttft_ms", "e2el_ms")
        if wrong is not None:
            key, text = wrong
            raise _error(piece, figures[key].line, f"the block contradicts itself: {text}")


def _error(piece: Piece, line: int, text: str) -> readers.ReadError:
    return readers.ReadError(f"{piece.file}:{line}: {text}")


def _setting(piece: Piece, row: BlockRow) -> str | float | None:
    if not row.text:
        raise _error(piece, row.line, f"`{row.label}` has no value; the line is cut off")
    if row.text in _ABSENT:
        return None
    value = float(row.text.replace(",", "")) if _NUMBER.fullmatch(row.text) else math.inf
    return value if math.isfinite(value) else row.text


def _number(piece: Piece, row: BlockRow, number: Number) -> tuple[float | None, ValueRange | None]:
    """The value in the metric's unit, converted as decimals, and the values that it may represent."""
    if row.text in _ABSENT:
        return None, None
    match = _NUMBER.fullmatch(row.text)
    if match is None or len(match["decimals"] or "") != number.decimals:
        form = f"a number with {number.decimals} decimals" if number.decimals else "a whole number"
        raise _error(piece, row.line, f"`{row.label}` is `{row.text}`, not {form} as the tool prints it")
    digits = row.text.rstrip("%").replace(",", "")
    value = float(digits) if number.factor == 1 else float(Decimal(digits) * number.factor)
    if not math.isfinite(value):
        raise _error(piece, row.line, f"`{row.label}` has {len(row.text):,} digits")
    return value, ValueRange.around(value, number.half_unit)


def _odd(spans: Mapping[Key, ValueRange]) -> Iterator[str]:
    """Warnings about figures that tools print but no server can reach."""
    for (metric, statistic), span in spans.items():
        if statistic in ("mean", "median") and metric in ("ttft_ms", "e2el_ms") and span.low == 0:
            yield f"{statistic} of {metric} is 0: the tool did not see when the tokens arrived"
