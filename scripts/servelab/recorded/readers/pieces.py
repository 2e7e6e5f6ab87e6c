"""Splits a file into pieces: console blocks, JSON documents, tables. It knows layouts, not tools."""

from __future__ import annotations

import csv
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Protocol

from servelab.core.errors import ServelabError
from servelab.recorded.readers.lines import is_docker_log, unwrapped, visible_lines

MOST_PREFIX = 500
"""Characters before a block's header: what a logger writes before each line."""
MOST_JSON_BYTES = 128 << 20
"""Of a file of JSON documents, which are read whole. A console log may have any size."""
MOST_ROWS, MOST_CHARACTERS = 2000, 1 << 20
"""Lines of a block or table (tools write 20 to 80), and all their characters."""
TITLE = "Serving Benchmark Result"
SECTION = re.compile(r"-{2,} ?[^-=].*?[^-=] ?-{2,}|={2,}![A-Z ]+!={2,}")
"""Title of a section, or TensorRT-LLM's warning of failed requests."""
_MOST_SHOWN = 1000
"""Characters of a message, in which a log may be quoted."""
_TABLES = ("Metric,", "Performance Parameters,Stage,")
"""How the first line of a saved table begins."""
_HEADER = re.compile(r"={12} Serving Benchmark Result ={12}(?=\s|$)")
_HALF_HEADER = re.compile(rf"===\s*{TITLE}|{TITLE}\s*===")
_FOOTER = "=" * 50
_VISIBLE = re.compile(r"\S")


class ReadError(ServelabError):
    """A block that cannot be read without a wrong figure; the message begins `file:line:` and is one printable line."""

    def __init__(self, text: str) -> None:
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        super().__init__("".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown))


@lru_cache(maxsize=1024)
def _like(lead: str) -> re.Pattern[str]:
    parts = re.split(r"(\d+|\s+)", lead)
    return re.compile(
        "".join(
            re.escape(part) if not n % 2 else r"\s*+" if part.isspace() else r"\d++" for n, part in enumerate(parts)
        )
    )


class Prefix:
    """What a logger writes before each line, given that of the first line; digits and spaces may differ."""

    def __init__(self, lead: str) -> None:
        self.lead = lead
        self._pattern = _like(re.sub(r"\d+", "0", lead))

    def end(self, line: str) -> int | None:
        """Where it ends in a line; None if the line does not begin with it."""
        match = self._pattern.match(line)
        return match.end() if match else None

    def rest(self, line: str) -> str:
        """What follows it in a line; the whole line if it does not begin with it."""
        return line[self.end(line) or 0 :] if self.lead else line


class BlockRow(NamedTuple):
    """A line of a block, `label: text`; a heading has no `text`, any other line no `label`."""

    line: int
    label: str
    text: str
    raw: str


@dataclass(frozen=True)
class Piece:
    """A part of a file that one tool wrote."""

    form: str
    file: str
    first_line: int
    last_line: int
    lines: dict[str, int]
    """Name (label, key, metric of a row) → its first line."""
    rows: list[BlockRow] = field(default_factory=list)
    """Lines of a block, between header and footer."""
    document: dict[str, Any] = field(default_factory=dict)
    """A JSON document."""
    tables: list[Any] = field(default_factory=list)
    """Tables of a log, each a `tables.DrawnTable`."""
    table: list[list[str]] = field(default_factory=list)
    """Rows of a CSV file."""
    broken: str | None = None
    """Why no tool's reader can read it."""

    def error(self, text: str, line: int | None = None) -> ReadError:
        """An error at a line, by default its first."""
        return ReadError(f"{self.file}:{line or self.first_line}: {text}")


Lines = deque[tuple[int, str]]
"""The last two visible lines before the one that is looked at, with their numbers."""


class Finder(Protocol):
    """Finds the pieces of a layout in a text."""

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """What a line ends."""
        ...

    def end(self) -> Iterable[Piece]:
        """What the end of the text ends."""
        ...


def split(file: str, texts: Iterator[str], finders: list[Finder]) -> Iterator[Piece]:
    """The pieces of a file, in order; `texts` are its consecutive parts, `finders` the layouts that a text may have."""
    first = next(texts, "")
    start = first.lstrip("\ufeff \t\r\n")
    parts = chain([first], texts)
    if start.startswith(_TABLES):
        yield _table(file, "".join(parts))
        return
    if start.startswith(("{", "[")) and not is_docker_log(start):
        content = _beginning(parts)
        if documents := _documents(file, content):
            yield from documents
            return
        parts = chain((content[at : at + (1 << 18)] for at in range(0, len(content), 1 << 18)), parts)
    lines = unwrapped(parts) if is_docker_log(start) else visible_lines(parts)
    before: Lines = deque(maxlen=2)
    for number, line in lines:
        for finder in finders:
            for piece in finder.feed(number, line, before):
                yield replace(piece, file=file)
        if line and not line.isspace():
            before.append((number, line))
    for finder in finders:
        for piece in finder.end():
            yield replace(piece, file=file)


def _beginning(texts: Iterator[str]) -> str:
    parts, length = [], 0
    for text in texts:
        parts.append(text)
        length += len(text)
        if length > MOST_JSON_BYTES:
            break
    return "".join(parts)


def _documents(file: str, text: str) -> list[Piece]:
    """JSON objects: of a whole file, of lists, of lines; none unless all of the text is JSON."""
    decode = json.JSONDecoder().raw_decode
    found: list[Piece] = []
    position = counted = 0
    line = 1
    while (match := _VISIBLE.search(text, position)) and len(text) <= MOST_JSON_BYTES:
        start = match.start()
        try:
            value, position = decode(text, start)
        except (RecursionError, ValueError):
            return []
        line += text.count("\n", counted, start)
        counted = start
        last = line + text.count("\n", start, position)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                found.append(Piece("json", file, line, last, dict.fromkeys(each, line), document=each))
    return found


def _table(file: str, text: str) -> Piece:
    try:
        table = list(csv.reader(text.splitlines())) if len(text) <= MOST_CHARACTERS else []
    except csv.Error as error:
        return Piece("csv", file, 1, 1, {}, broken=f"not a table: {error}")
    lines = {row[0]: number for number, row in reversed(list(enumerate(table, 1))) if row}
    broken = None if text.endswith("\n") else "the table's last line is cut off"
    return Piece(
        "csv", file, 1, len(table), lines, table=table, broken=broken if table else "a table of more than 1 MiB"
    )


class ConsoleBlocks:
    """Fed the lines of a log, gives each console block when it ends.

    `is_known` recognises labels: the end of a block without a header is an error, but a line of 50 `=` in another
    program's log is not.
    """

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._first = self._length = self._last = 0
        self._prefix = Prefix("")
        self._rows: list[BlockRow] = []

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The block that a line ends, if it does."""
        self._last = number
        if TITLE in line and _HALF_HEADER.search(line):
            return list(self._titled(number, line))
        if self._first:
            return self._inside(number, line)
        if _FOOTER in line and before and self._ends_known(line, before[-1][1]):
            return (block_of("console", number, number, [], "the end of a block whose header is missing"),)
        return ()

    def end(self) -> Iterable[Piece]:
        """The block that the end of the log cuts off."""
        return (self._ended(self._last, "its last line of 50 `=` is missing"),) if self._first else ()

    def _ends_known(self, line: str, above: str) -> bool:
        lead, _, rest = line.partition(_FOOTER)
        end = None if rest.strip() or len(lead) > MOST_PREFIX else Prefix(lead).end(above)
        return end is not None and self._is_known(_row(0, above[end:].strip()).label)

    def _titled(self, number: int, line: str) -> Iterator[Piece]:
        if self._first:
            yield self._ended(number - 1, f"line {number} begins another")
        header = _HEADER.search(line)
        if header and not line[header.end() :].strip() and header.start() <= MOST_PREFIX:
            self._first, self._rows, self._length = number, [], 0
            self._prefix = Prefix(line[: header.start()])
        else:
            why = "the block's header is cut off, or its line breaks are lost"
            yield block_of("console", number, number, [], why)

    def _inside(self, number: int, line: str) -> Iterable[Piece]:
        content = self._prefix.rest(line).strip()
        self._length += len(content)
        if content == _FOOTER:
            return (self._ended(number, None),)
        if len(self._rows) == MOST_ROWS or self._length > MOST_CHARACTERS:
            self._rows = []
            return (self._ended(number, "its last line of 50 `=` does not follow within 2,000 lines and 1 MiB"),)
        if content:
            self._rows.append(_row(number, content))
        return ()

    def _ended(self, last: int, why: str | None) -> Piece:
        first, self._first = self._first, 0
        return block_of("console", first, last, self._rows, f"the block is cut off: {why}" if why else None)


def block_of(form: str, first: int, last: int, rows: list[BlockRow], broken: str | None = None) -> Piece:
    """The piece of some rows."""
    lines: dict[str, int] = {}
    for row in rows:
        if row.label:
            lines.setdefault(row.label, row.line)
    return Piece(form, "", first, max([last, *(row.line for row in rows)]), lines, rows=rows, broken=broken)


def _row(number: int, content: str) -> BlockRow:
    label, colon, text = content.partition(":")
    if not label or not colon or (text and not text[0].isspace()) or SECTION.fullmatch(content):
        return BlockRow(number, "", "", content)
    label, text = label.strip(), text.strip()
    return BlockRow(number, f"{label} (%)" if text.endswith("%") else label, text, content)
