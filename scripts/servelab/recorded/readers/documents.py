"""Reads JSON results with one figure per key, and has the parts that all readers of saved figures share."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from servelab.recorded import readers
from servelab.recorded.readers.consistency import Identity, Key, ValueRange, contradiction, not_above, times_within
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import DrawnTable, GridRow

_MOST_INTEGER = 10**300
_MOST_SETTING, _MOST_BRACKETS = 4096, 64
_EXACT = 1e-7
"""Relative width of a figure saved with all its digits."""
_STATISTICS = {"mean": "mean", "median": "median", "std": "std", "min": "minimum", "max": "maximum"}
_FAMILY = re.compile(r"(?P<statistic>mean|median|std|min|max|p(?P<percentile>\d{1,3}(?:\.\d{1,12})?))_(?P<family>.+)")


@dataclass
class Saved:
    """Collects the figures of a saved result for a block."""

    piece: Piece
    figures: dict[Key, readers.PrintedFigure] = field(default_factory=dict)
    spans: dict[Key, ValueRange] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, key: Key, value: Any, name: str, half_width: float = 0.0, line: int | None = None) -> None:
        """Adds a figure under its name in the result; `ReadError` if it is not a number, or negative."""
        line = line or self.piece.first_line
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.error(f"`{name}` is not a number: {value!r}", line)
        if isinstance(value, int) and abs(value) > _MOST_INTEGER:
            raise self.error(f"`{name}` has hundreds of digits", line)
        if value is None or math.isnan(value):
            self.figures[key] = readers.PrintedFigure(*key, None, line)
            self.warnings.append(f"`{name}` has no value")
            return
        if value < 0 or math.isinf(value):
            raise self.error(f"`{name}` cannot be {value}", line)
        span = ValueRange.around(value, half_width + _EXACT * value)
        if key in self.spans and not self.spans[key].meets(span):
            raise self.error(f"the result contradicts itself: `{name}` is a second {key[1]} of {key[0]}", line)
        self.figures[key] = readers.PrintedFigure(*key, float(value), line, half_width)
        self.spans[key] = span

    def error(self, text: str, line: int | None = None) -> readers.ReadError:
        """An error at a line."""
        return readers.ReadError(f"{self.piece.file}:{line or self.piece.first_line}: {text}")

    def block(
        self,
        *,
        tool: str,
        version: str | None,
        definitions: Mapping[str, str],
        settings: Mapping[str, Any],
        unknown: list[readers.UnknownLine],
        identities: tuple[Identity, ...] = (),
        within_run: tuple[str, ...] = (),
    ) -> readers.Block:
        """The block; `ReadError` if its figures contradict each other."""
        wrong = contradiction(self.spans, identities) or times_within(self.spans, within_run)
        if wrong is None and within_run:
            wrong = not_above(self.spans, "ttft_ms", "e2el_ms")
        if wrong is not None:
            raise self.error(f"the result contradicts itself: {wrong[1]}", self.figures[wrong[0]].line)
        if unknown:
            self.warnings.append(
                f"not read, unknown figures: {', '.join(each.text.split(': ')[0] for each in unknown)}"
            )
        return readers.Block(
            tool=tool,
            tool_version=version,
            file=self.piece.file,
            first_line=self.piece.first_line,
            last_line=self.piece.last_line,
            figures=tuple(self.figures.values()),
            definitions=readers.definitions_of(definitions, self.spans),
            settings={name: _plain(value) for name, value in settings.items()},
            unknown=tuple(unknown),
            warnings=tuple(self.warnings),
        )


def _plain(value: Any) -> Any:
    """A setting as JSON can hold it, or the start of its text: a hostile one is no number, large, or deeply nested."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    is_small = len(text) <= _MOST_SETTING and sum(map(text.count, "[{")) <= _MOST_BRACKETS and "NaN" not in text
    return value if is_small and "Infinity" not in text else text[:_MOST_SETTING]


def text_or_none(value: Any) -> str | None:
    """A version as its tool wrote it; None for anything but a short text."""
    return value if isinstance(value, str) and len(value) < 100 and value.isprintable() else None


def unknown_entry(piece: Piece, key: str, value: Any) -> readers.UnknownLine:
    """An entry of a document that no reader knows, kept whole."""
    return readers.UnknownLine(piece.first_line, f"{key}: {json.dumps(value, ensure_ascii=False)}")


@dataclass(frozen=True)
class DocumentReader:
    """Reads a tool's saved JSON: an object whose keys are figures, settings, and lists with one entry per request."""

    tool: str
    markers: frozenset[str]
    numbers: Mapping[str, str]
    """Key → metric that is one number."""
    families: Mapping[str, str]
    """What follows `mean_`, `p99_`, … in a key → metric in the same unit."""
    required: tuple[str, ...]
    definitions: Mapping[str, str]
    settings: Mapping[str, str]
    """Key → name among the settings; keys with a text or a boolean need no entry."""
    figures: Mapping[str, Key] = field(default_factory=dict)
    """Key → metric and statistic, for keys whose form gives neither."""
    details: frozenset[str] = frozenset()
    """Keys with one entry per request, and others that are not figures."""
    identities: tuple[Identity, ...] = ()
    within_run: tuple[str, ...] = ()
    releases: Mapping[str, str] = field(default_factory=dict)
    """Key → releases that write it."""
    form: str = "json"

    def knows(self, name: str) -> bool:
        """Whether its tool writes figures, or a list with one figure per request, under such a key."""
        return name in self.numbers or name in self.figures or name in self.details or self._statistic(name) is not None

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of a document; `ReadError` if it is broken."""
        saved = Saved(piece)
        settings: dict[str, Any] = {}
        unknown: list[readers.UnknownLine] = []
        for key in self.required:
            if piece.document.get(key) is None:
                raise saved.error(f"`{key}` is missing")
        for key, value in piece.document.items():
            figure = self.figures.get(key) or self._statistic(key)
            if key in self.numbers:
                if value is not None:
                    saved.add((self.numbers[key], readers.VALUE), value, key)
            elif figure is not None:
                saved.add(figure, value, key)
            elif key in self.settings or value is None or isinstance(value, str | bool):
                infinite = isinstance(value, float) and math.isinf(value)
                settings[self.settings.get(key, key)] = "inf" if infinite else value
            elif key not in self.details:
                unknown.append(unknown_entry(piece, key, value))
        releases = [self.releases[key] for key in piece.document if key in self.releases]
        block = saved.block(
            tool=self.tool,
            version=max(releases, key=lambda release: [int(part) for part in release[2:].split(".")], default=None),
            definitions=self.definitions,
            settings=settings,
            unknown=unknown,
            identities=self.identities,
            within_run=self.within_run,
        )
        return [block]

    def _statistic(self, key: str) -> Key | None:
        match = _FAMILY.fullmatch(key)
        if match is None or match["family"] not in self.families:
            return None
        statistic = _STATISTICS.get(match["statistic"], match["statistic"])
        if match["percentile"] and float(match["percentile"]) > 100:
            return None
        return self.families[match["family"]], "median" if statistic == "p50" else statistic


_NUMBER = re.compile(r"(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.(?P<decimals>\d+))?")
ABSENT = frozenset({"N/A", "nan", "None", "-", ""})


class Cells:
    """Adds figures from cells of tables, and refuses a number in another form than its tool prints."""

    def __init__(self, piece: Piece) -> None:
        self.saved = Saved(piece)

    def add(self, key: Key, text: str, row: GridRow, decimals: int | None, factor: float = 1) -> None:
        """Adds a figure, converted by `factor`; its last digit says how far it is rounded.

        `decimals` is the number of digits after the point that the tool prints; None if it depends on the value.
        A text that means that there is no value adds a figure without one.
        """
        value, half_unit = self.number(text, row, decimals, factor)
        self.saved.add(key, value, row.cells[0] or key[0], half_unit, row.line)

    def number(self, text: str, row: GridRow, decimals: int | None, factor: float = 1) -> tuple[float | None, float]:
        """A number and half a unit of its last digit; None if the text means that there is no value.

        Commas between thousands only where digits after the point show that they are none of another locale's.
        """
        if text in ABSENT:
            return None, 0.0
        match = _NUMBER.fullmatch(text)
        digits = len(match["decimals"] or "") if match else 0
        if match is None or (decimals is not None and digits != decimals) or ("," in text and not decimals):
            form = "a number" if decimals is None else f"a number with {decimals} decimals"
            raise self.saved.error(f"`{row.cells[0]}` has `{text}`, not {form} as the tool prints it", row.line)
        value = float(Decimal(text.replace(",", "")) * Decimal(repr(factor)))
        if not math.isfinite(value):
            raise self.saved.error(f"`{row.cells[0]}` has {len(text):,} digits", row.line)
        return value, 0.5 * 10.0**-digits * factor if digits or decimals is None else 0.0

    def named(self, grid: DrawnTable, unwrap: bool = False) -> Mapping[str, GridRow]:
        """Rows by their first cell; `ReadError` if one occurs twice.

        With `unwrap`, a row with nothing but a first cell continues the name of the row above it.
        """
        found: dict[str, GridRow] = {}
        name = ""
        for row in grid.rows:
            if unwrap and name and row.cells[0] and not any(row.cells[1:]):
                above = found.pop(name)
                row = replace(above, cells=(f"{name} {row.cells[0]}", *above.cells[1:]))
            name = row.cells[0]
            if name in found:
                raise self.saved.error(f"`{name}` occurs twice, first in line {found[name].line}", row.line)
            found[name] = row
        return found
