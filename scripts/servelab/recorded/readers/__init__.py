"""Readers: turn what a load client printed or saved into plain figures under the names of docs/reference/metrics.md.

A file is split into *pieces* (a console block, a JSON document, a table). The reader of a piece is the one whose
markers, the lines or keys that only its tool writes, are all in it; file names do not matter. A piece that is cut off
or contradicts itself is an error with file and line; a line that no reader knows is kept and reported.

Checks follow from the tool's own definitions: a rate is its amount over the duration, parts add up, percentiles are in
order. So a wrong digit is found if other figures in the block determine the figure, as far as the printed digits allow.
A wrong digit in an independent figure cannot be found.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from servelab.core.errors import ServelabError
from servelab.core.registry import Registry
from servelab.recorded.readers.embedded import EmbeddedJson
from servelab.recorded.readers.frames import Frames
from servelab.recorded.readers.lines import decoded
from servelab.recorded.readers.pieces import Finder, Piece, split
from servelab.recorded.readers.table_layouts import Grids, gathered

_MOST_SHOWN = 1000
"""Characters of a message, in which a log may be quoted."""
_MOST_ERRORS = 100
"""Errors of a file; after that it is not read on."""
_MOST_UNKNOWN = 5000
"""Records of a file that no reader knows; after that it is not read on."""
VALUE = "value"
"""Statistic of a figure that is one number: a count, a rate, a duration."""


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


class ReadError(ServelabError):
    """A block that cannot be read without a wrong figure; the message begins `file:line:` and is one printable line."""

    def __init__(self, text: str) -> None:
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        super().__init__("".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown))


class UnknownResultError(ReadError):
    """A piece that no reader knows."""


class Reader(Protocol):
    """Reads the pieces of one form of one tool."""

    @property
    def tool(self) -> str:
        """The tool; its name as a client where it is one."""
        ...

    @property
    def form(self) -> str:
        """Form of the pieces it reads: `console`, `json`, `csv`, `grid` (tables of a log) or `frame`."""
        ...

    @property
    def markers(self) -> frozenset[str]:
        """Names (labels of lines, keys, metrics of rows) that every piece of the tool has, and few others."""
        ...

    def knows(self, name: str) -> bool:
        """Whether its tool writes such a name."""
        ...

    def read(self, piece: Piece) -> list[Block]:
        """Its blocks; `ReadError` if it is broken."""
        ...


READERS: Registry[Reader] = Registry("reader")


def scan_file(path: Path, notes: list[str] | None = None) -> Iterator[Block | ReadError]:
    """Each block of a file in order, or the error that prevents reading it.

    A file without any block, or one that cannot be opened, gives one error. What else looked like a result and is none
    that a reader knows is said in `notes`.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            yield ReadError(f"{path}: is a device, not a log")
            return
        with path.open("rb") as file:
            yield from scan_stream(str(path), file, notes)
    except OSError as error:
        yield ReadError(f"{path}: {error.strerror}")


def scan_stream(name: str, file: BinaryIO, notes: list[str] | None = None) -> Iterator[Block | ReadError]:
    """The same for an open file, or a member of an archive."""
    errors = 0
    for found in _scan(name, file, [] if notes is None else notes):
        yield found
        errors += isinstance(found, ReadError)
        if errors == _MOST_ERRORS:
            yield ReadError(f"{name}: {_MOST_ERRORS} results could not be read; the rest is not looked at")
            return


def _scan(name: str, file: BinaryIO, notes: list[str]) -> Iterator[Block | ReadError]:
    found, unknown = False, 0
    tables: list[int] = []
    orders = [(reader.markers, *getattr(reader, "others", ())) for reader in READERS if reader.form == "grid"]
    objects = EmbeddedJson([reader.markers for reader in READERS if reader.form == "json"])
    grids = Grids([names for order in orders for names in order])

    def finders() -> list[Finder]:
        return [grids, Frames(), objects]

    for piece in gathered(split(name, decoded(file), _is_console_label, finders), orders):
        if piece.form in ("grid", "frame") and not _fitting(piece):
            tables.append(piece.first_line)
            continue
        found = True
        try:
            yield from _read(piece)
        except UnknownResultError as error:
            unknown += 1
            if unknown == 1:  # a file with one record per line is one mistake
                yield error
            if unknown == _MOST_UNKNOWN:
                yield ReadError(f"{name}: {unknown:,} records that no reader knows; the rest is not looked at")
                return
        except ReadError as error:
            yield error
    tables += grids.others
    for what, lines in (("tables", tables), ("JSON objects", objects.others)):
        if lines:
            notes.append(f"{name}:{min(lines)}: {len(lines)} {what} that no reader knows, the first here")
    if not found:
        tools = ", ".join(sorted({reader.tool for reader in READERS}))
        beside = f" ({len(tables)} tables, {len(objects.others)} JSON objects)" if tables or objects.others else ""
        yield UnknownResultError(f"{name}: no result of a load client found{beside}. Known: {tools}")


def _fitting(piece: Piece) -> list[Reader]:
    return [reader for reader in READERS if reader.form == piece.form and reader.markers <= piece.names]


def _read(piece: Piece) -> list[Block]:
    """The blocks of a piece; `ReadError` for any piece that its tool has not written so."""
    reader = _reader_of(piece)
    try:
        return reader.read(piece)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ReadError(f"{piece.file}:{piece.first_line}: not a result as {reader.tool} writes it ({why})") from None


def read_file(path: Path) -> list[Block]:
    """Every block of a file in order; `ReadError` for the first unreadable one, or if there is none."""
    blocks = []
    for block in scan_file(path):
        if isinstance(block, ReadError):
            raise block
        blocks.append(block)
    return blocks


def definitions_of(definitions: Mapping[str, str], figures: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The tool's definitions of the metrics among its figures (metric and statistic)."""
    metrics = {metric for metric, _ in figures}
    return {metric: text for metric, text in definitions.items() if metric in metrics}


def _is_console_label(label: str) -> bool:
    return any(reader.form == "console" and reader.knows(label) for reader in READERS)


def _reader_of(piece: Piece) -> Reader:
    """The reader with the most markers among those whose markers are all there."""
    if piece.broken:
        raise ReadError(f"{piece.file}:{piece.first_line}: {piece.broken}")
    fitting = _fitting(piece)
    if not fitting:
        raise UnknownResultError(f"{piece.file}:{piece.first_line}: no reader knows this {piece.form} result")
    reader = max(fitting, key=lambda candidate: len(candidate.markers))
    if piece.form in ("grid", "frame"):
        return reader
    relatives = [other for other in READERS if other.form == piece.form and other.markers & reader.markers]
    for name, line in piece.lines.items():
        if reader.knows(name):
            continue
        if owners := sorted({other.tool for other in relatives if other.knows(name)}):
            raise ReadError(
                f"{piece.file}:{line}: `{name}` is a line of {', '.join(owners)}, but the others are from "
                f"{reader.tool}: lines are missing, or two results are mixed"
            )
    return reader


READERS.load(__name__)
