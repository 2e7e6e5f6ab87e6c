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

from servelab.recorded.readers.lines import is_docker_log, unwrapped, visible_lines

MOST_PREFIX = 500
"""Characters before a block's header: what a logger writes before each line."""


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
        if not self.lead:
            return line
        end = self.end(line)
        return line if end is None else line[end:]


_TABLES = ("Metric,", "Performance Parameters,Stage,")
"""How the first line of a saved table begins."""
_JSON = re.compile(r"\{\s*(?:[\"}]|$)|\[\s*(?:[\[{\"]|$|-?\d+(?:\.\d+)?\s*[,\]])|\{(?=\S*$)")
"""How JSON begins; a log line may begin `[2026-01-02`, too."""
HEADER = re.compile(r"={12} Serving Benchmark Result ={12}(?=\s|$)")
TITLE = "Serving Benchmark Result"
_HALF_HEADER = re.compile(rf"===\s*{TITLE}|{TITLE}\s*===")
FOOTER = "=" * 50
SECTION = re.compile(r"-{2,} ?[^-=].*?[^-=] ?-{2,}|={2,}![A-Z ]+!={2,}")
"""Title of a section, or TensorRT-LLM's warning of failed requests."""

MOST_JSON_BYTES = 128 << 20
"""Of a file of JSON documents, which are read whole. A console log may have any size."""
MOST_TABLE_BYTES = 1 << 20
_MOST_ROWS, _MOST_CHARACTERS = 2000, 1 << 20
"""Lines of a block (tools write 20 to 80), and all their characters."""
_PART = 1 << 18
_VISIBLE = re.compile(r"\S")


class BlockRow(NamedTuple):
    """A line of a console block, `label: text`; a heading has no `text`, any other line no `label`."""

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
    """Lines of a console block, between header and footer."""
    document: dict[str, Any] = field(default_factory=dict)
    """A JSON document."""
    grids: list[Any] = field(default_factory=list)
    """Tables of a log, each a `grids.DrawnTable`."""
    table: list[list[str]] = field(default_factory=list)
    """Rows of a CSV file."""
    broken: str | None = None
    """Why no tool's reader can read it."""

    @property
    def names(self) -> frozenset[str]:
        """Names of its lines."""
        return frozenset(self.lines)


def split(
    file: str, texts: Iterator[str], is_known: Callable[[str], bool], finders: Callable[[], list[Finder]]
) -> Iterator[Piece]:
    """The pieces of a file, in order; `texts` are its consecutive parts.

    `is_known` recognises labels of console blocks: the end of a block without a header is an error, but a line of 50
    `=` in another program's log is not. `finders` are the other layouts that may stand in a text.
    """
    first = next(texts, "")
    start = first.lstrip("\ufeff \t\r\n")

    def text(parts: Iterable[str]) -> Iterator[Piece]:
        lines = unwrapped(parts) if is_docker_log(start) else visible_lines(parts)
        return _text(file, lines, [ConsoleBlocks(file, is_known), *finders()])

    if is_docker_log(start):
        yield from text(chain([first], texts))
    elif _JSON.match(start):
        yield from _json_or_text(file, chain([first], texts), text)
    elif start.startswith(_TABLES):
        yield _table(file, chain([first], texts))
    else:
        yield from text(chain([first], texts))


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


def _text(file: str, lines: Iterable[tuple[int, str]], finders: list[Finder]) -> Iterator[Piece]:
    """The pieces of a text."""
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


def _whole(texts: Iterator[str], most: int) -> tuple[str, Iterator[str]]:
    """The text up to about `most` characters, and the parts after it."""
    parts, length = [], 0
    for text in texts:
        parts.append(text)
        length += len(text)
        if length > most:
            break
    return "".join(parts), texts


def _json_or_text(file: str, texts: Iterator[str], text: Callable[[Iterable[str]], Iterator[Piece]]) -> Iterator[Piece]:
    """JSON documents; or a text whose first line begins like JSON."""
    content, rest = _whole(texts, MOST_JSON_BYTES)
    too_long = len(content) > MOST_JSON_BYTES
    values, broken = ([], None) if too_long or HEADER.search(content) else _values(file, content)
    if values and broken is None and isinstance(values[-1].value, dict):
        yield from _documents(file, content, values)
        return
    is_json = bool(values) or broken is not None
    found = False
    parts = (content[start : start + _PART] for start in range(0, len(content), _PART))
    for piece in text(chain(parts, rest)):
        if not found and is_json and (piece.broken or piece.form == "json"):
            continue  # what broke the document is said better by its own error
        found = True
        yield piece
    if not found and is_json:
        yield from _documents(file, content, values)
        if broken is not None:
            yield broken
    elif not found:
        yield _broken("json", file, 1, f"JSON of more than {MOST_JSON_BYTES >> 20} MiB; save it without each request")


def _table(file: str, texts: Iterator[str]) -> Piece:
    text, _ = _whole(texts, MOST_TABLE_BYTES)
    if len(text) > MOST_TABLE_BYTES:
        return _broken("csv", file, 1, f"a table of more than {MOST_TABLE_BYTES >> 20} MiB")
    reader = csv.reader(text.splitlines())
    try:
        table = list(reader)
    except csv.Error as error:
        return _broken("csv", file, max(1, reader.line_num), f"not a table: {error}")
    lines = {row[0]: number for number, row in reversed(list(enumerate(table, 1))) if row}
    cut = None if text.endswith("\n") else "the table's last line is cut off"
    return Piece("csv", file, 1, len(table), lines, table=table, broken=cut)


def _broken(form: str, file: str, line: int, why: str) -> Piece:
    return Piece(form, file, line, line, {}, broken=why)


class _Value(NamedTuple):
    """A JSON value and where it stands in a text; one of a list has the place of the list."""

    start: int
    end: int
    value: Any


def _values(file: str, text: str) -> tuple[list[_Value], Piece | None]:
    """JSON values, one after the other: a whole file, JSON lines, or an appended result; and what ends them early.

    Of those that are no object only the first is given: a file of numbers is one mistake.
    """
    decode, visible = json.JSONDecoder().raw_decode, _VISIBLE.search
    found: list[_Value] = []
    position, others = 0, False
    while match := visible(text, position):
        start = match.start()
        try:
            value, position = decode(text, start)
        except json.JSONDecodeError as error:
            return found, _broken("json", file, error.lineno, f"JSON is cut off or broken: {error.msg}")
        except (RecursionError, ValueError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else "a number has thousands of digits"
            line = 1 + text.count("\n", 0, start)
            return found, _broken("json", file, line, f"JSON that no tool writes: {why}")
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, dict):
                found.append(_Value(start, position, each))
            elif not others:
                others = True
                found.append(_Value(start, position, each))
    return found, None


def _documents(file: str, text: str, values: Iterable[_Value]) -> Iterator[Piece]:
    """The piece of each."""
    first, counted = 1, 0
    for start, end, value in values:
        first += text.count("\n", counted, start)
        counted = start
        if isinstance(value, dict):
            last = first + text.count("\n", start, end)
            yield Piece("json", file, first, last, dict.fromkeys(value, first), document=value)
        else:
            yield _broken("json", file, first, "a JSON value that is not an object")


class ConsoleBlocks:
    """Fed the lines of a log, gives each console block when it ends."""

    def __init__(self, file: str, is_known: Callable[[str], bool]) -> None:
        self._file, self._is_known = file, is_known
        self._first = self._length = self._last = 0
        self._prefix = Prefix("")
        self._rows: list[BlockRow] = []

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The block that a line ends, if it does."""
        self._last = number
        if TITLE in line:
            return list(self._titled(number, line))
        if self._first:
            return self._inside(number, line)
        if (
            FOOTER in line
            and before
            and (place := line.find(FOOTER)) <= MOST_PREFIX
            and not line[place + len(FOOTER) :].strip()
            and (end := Prefix(line[:place]).end(before[-1][1])) is not None
            and self._is_known(_row(number, before[-1][1][end:].strip()).label)
        ):
            return (_broken("console", self._file, number, "the end of a block whose header is missing"),)
        return ()

    def end(self) -> Iterable[Piece]:
        """The block that the end of the log cuts off."""
        if self._first:
            yield self._ended(self._last, "the block is cut off: its last line of 50 `=` is missing")

    def _titled(self, number: int, line: str) -> Iterator[Piece]:
        header = HEADER.search(line)
        if header and not line[header.end() :].strip() and header.start() <= MOST_PREFIX:
            if self._first:
                yield self._ended(number - 1, f"the block is cut off: line {number} begins another")
            self._first, self._rows, self._length = number, [], 0
            self._prefix = Prefix(line[: header.start()])
        elif header or _HALF_HEADER.search(line):
            fault = "line breaks are lost: it needs a line for each figure" if header else "header is cut off"
            yield _broken("console", self._file, number, f"the block's {fault}")
            self._first = 0
        elif self._first:
            yield from self._inside(number, line)

    def _inside(self, number: int, line: str) -> Iterable[Piece]:
        content = self._prefix.rest(line).strip()
        self._length += len(content)
        if content == FOOTER:
            return (self._ended(number, None),)
        if len(self._rows) == _MOST_ROWS or self._length > _MOST_CHARACTERS:
            self._rows = []
            why = "its last line of 50 `=` does not follow within 2,000 lines and 1 MiB"
            return (self._ended(number, f"the block is cut off: {why}"),)
        if content:
            self._rows.append(_row(number, content))
        return ()

    def _ended(self, last: int, broken: str | None) -> Piece:
        first, self._first = self._first, 0
        return block_of("console", self._file, first, last, self._rows, broken)


def block_of(form: str, file: str, first: int, last: int, rows: list[BlockRow], broken: str | None) -> Piece:
    """The piece of some rows."""
    lines: dict[str, int] = {}
    for row in rows:
        if row.label:
            lines.setdefault(row.label, row.line)
    return Piece(form, file, first, max([last, *(row.line for row in rows)]), lines, rows=rows, broken=broken)


def _row(number: int, content: str) -> BlockRow:
    label, colon, text = content.partition(":")
    if not label or not colon or (text and not text[0].isspace()) or SECTION.fullmatch(content):
        return BlockRow(number, "", "", content)
    label, text = label.strip(), text.strip()
    return BlockRow(number, f"{label} (%)" if text.endswith("%") else label, text, content)
