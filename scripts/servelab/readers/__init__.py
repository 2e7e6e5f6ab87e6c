"""Readers: what a load client printed or saved, as plain figures under the names of docs/metrics.md.

A file is cut into *pieces* (a console block, a JSON document, a table), and each piece is read by the reader whose
markers, the lines or keys that only its tool writes, are all in it. Names of files say nothing. A piece that is cut off
or contradicts itself is an error that names file and line; a line that no reader knows is kept and reported.

What is checked is what the tool's own definitions force: a rate that must be its amount over the duration, parts that
must add up, percentiles in order. A wrong digit in a figure that others in the block determine is therefore found, as
far as the printed digits determine it. One in a figure that stands alone cannot be found by anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from servelab.errors import ServelabError
from servelab.readers.pieces import Piece, read_text, split
from servelab.registry import Registry

VALUE = "value"
"""Statistic of a figure that is one number: a count, a rate, a duration."""


class Figure(NamedTuple):
    """One number of a block."""

    metric: str
    """Name in docs/metrics.md where it has one, unit in the name."""
    statistic: str
    """`value`, or `mean`, `std`, `minimum`, `median`, `p99`, …, `maximum` as in `schemas.METRICS`."""
    value: float | None
    """None where the tool printed that it has none."""
    line: int
    """Where it stands, from 1."""
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
    """The release, or the releases its lines tell of, as in `>=0.11.1,<0.13.0`; None where nothing tells."""
    file: str
    first_line: int
    last_line: int
    figures: tuple[Figure, ...]
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Metric → how the tool's definition differs from docs/metrics.md."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the tool says of the load it put on: `max_concurrency`, `request_rate_per_s`, `backend`, …"""
    unknown: tuple[UnknownLine, ...] = ()
    warnings: tuple[str, ...] = ()

    def value(self, metric: str, statistic: str = VALUE) -> float | None:
        """A figure; None where the block has none."""
        return next((f.value for f in self.figures if (f.metric, f.statistic) == (metric, statistic)), None)

    def metrics(self) -> dict[str, dict[str, float | None]]:
        """Metric → statistic → value."""
        nested: dict[str, dict[str, float | None]] = {}
        for figure in self.figures:
            nested.setdefault(figure.metric, {})[figure.statistic] = figure.value
        return nested


class ReadError(ServelabError):
    """A block that cannot be read without a wrong figure; the message begins `file:line:`."""


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
        """Form of the pieces it reads: `console`, `json` or `csv`."""
        ...

    @property
    def markers(self) -> frozenset[str]:
        """Names (labels of lines, keys, metrics of rows) that every piece of the tool has, and few others."""
        ...

    def knows(self, name: str) -> bool:
        """Whether its tool writes such a name."""
        ...

    def read(self, piece: Piece) -> list[Block]:
        """Its blocks; `ReadError` where it is broken."""
        ...


READERS: Registry[Reader] = Registry("reader")


def scan_file(path: Path) -> Iterator[Block | ReadError]:
    """Each block of a file in order, or the error that keeps it from being read.

    A file without any block, or one that cannot be opened or decoded, gives one error.
    """
    try:
        text = read_text(path)
    except OSError as error:
        yield ReadError(f"{path}: {error.strerror}")
        return
    found = unknown = False
    for piece in split(path, text, _is_console_label):
        found = True
        try:
            yield from _reader_of(piece).read(piece)
        except UnknownResultError as error:
            if not unknown:  # a file of records, one a line, is one mistake
                yield error
            unknown = True
        except ReadError as error:
            yield error
    if not found:
        tools = ", ".join(sorted({reader.tool for reader in READERS}))
        yield UnknownResultError(f"{path}: no result of a load client found. Known: {tools}")


def read_file(path: Path) -> list[Block]:
    """Every block of a file in order; `ReadError` on the first that cannot be read, or if there is none."""
    blocks = []
    for block in scan_file(path):
        if isinstance(block, ReadError):
            raise block
        blocks.append(block)
    return blocks


def definitions_of(definitions: Mapping[str, str], figures: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Those of a tool's definitions that its figures (metric and statistic) need."""
    metrics = {metric for metric, _ in figures}
    return {metric: text for metric, text in definitions.items() if metric in metrics}


def _is_console_label(label: str) -> bool:
    return any(reader.form == "console" and reader.knows(label) for reader in READERS)


def _reader_of(piece: Piece) -> Reader:
    """The reader with the most markers among those whose markers are all there."""
    if piece.broken:
        raise ReadError(f"{piece.file}:{piece.first_line}: {piece.broken}")
    fitting = [reader for reader in READERS if reader.form == piece.form and reader.markers <= piece.names]
    if not fitting:
        raise UnknownResultError(f"{piece.file}:{piece.first_line}: no reader knows this {piece.form} result")
    reader = max(fitting, key=lambda candidate: len(candidate.markers))
    relatives = [other for other in READERS if other.form == piece.form and other.markers & reader.markers]
    for name, line in piece.lines.items():
        owners = sorted({other.tool for other in relatives if other.knows(name)})
        if owners and not reader.knows(name):
            raise ReadError(
                f"{piece.file}:{line}: `{name}` is a line of {', '.join(owners)}, but the others are of {reader.tool}: "
                f"lines are missing, or two results are mixed"
            )
    return reader


READERS.load(__name__)
