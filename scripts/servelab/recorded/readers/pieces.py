"""Splits a file into pieces: console blocks, JSON documents, tables. It knows layouts, not tools."""

from __future__ import annotations

import csv
import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Set
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
SECTION = re.compile(r"-{2,} ?[^-=].*?[^-=] ?-{2,}|={2,}![A-Z ]+!={2,}")
"""Title of a section, or TensorRT-LLM's warning of failed requests."""
_MOST_SHOWN = 1000
"""Characters of a message, in which a log may be quoted."""
_TABLES = ("Metric,", "Performance Parameters,Stage,")
"""How the first line of a saved table begins."""
_VISIBLE = re.compile(r"\S")
_DECODE = json.JSONDecoder().raw_decode
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)("?)')
"""A text, and what ends it. One without an end is matched too, so that no character is looked at twice."""
_CONTINUES = re.compile(r'\s*(?:["\]}\[{]|-?\d|true|false|null|NaN|-?Infinity)')


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
    found: list[Piece] = []
    position = counted = 0
    line = 1
    while (match := _VISIBLE.search(text, position)) and len(text) <= MOST_JSON_BYTES:
        start = match.start()
        try:
            value, position = _DECODE(text, start)
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


class EmbeddedJson:
    """Fed the lines of a text, gives each JSON object of a result when it ends.

    `results` are the keys by which readers know theirs. Objects of other programs are counted in `others`, by line.
    An object that ends too early is broken if its text has such keys.
    """

    def __init__(self, results: Collection[frozenset[str]]) -> None:
        self._results = results
        self._parts: list[str] = []
        self._first = self._depth = self._length = 0
        self._prefix = Prefix("")
        self.others: list[int] = []

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The object that a line ends, if it does."""
        if not self._parts:
            return self._begun(number, line) if "{" in line else ()
        content = self._prefix.rest(line)
        bare = content.lstrip()
        if not bare:
            return ()
        if _CONTINUES.match(bare) and (len(self._parts) > 1 or bare[0] in '"}'):
            return self._add(number, content)
        return (*self._broken("another line stands in it"), *self._begun(number, line))

    def end(self) -> Iterable[Piece]:
        """The object that the end of the text cuts off."""
        return self._broken("it does not end") if self._parts else ()

    def _begun(self, number: int, line: str) -> Iterable[Piece]:
        match = _START.search(line)
        if match is None or match.start() > MOST_PREFIX:
            return ()
        self._first, self._depth, self._length = number, 0, 0
        self._prefix = Prefix(line[: match.start()])
        content = line[match.start() :]
        if "}" in content:
            try:
                return self._found(_DECODE(content)[0], number)
            except (RecursionError, ValueError):
                pass
        return self._add(number, content)

    def _add(self, number: int, content: str) -> Iterable[Piece]:
        self._parts.append(content)
        self._length += len(content)
        if self._length > MOST_JSON_BYTES:
            return self._broken("it is too long")
        bare = _STRING.sub(lambda text: '""' if text[2] else text[0], content)
        self._depth += sum(map(bare.count, "{[")) - sum(map(bare.count, "}]"))
        if self._depth > 0:
            return ()
        try:
            return self._found(_DECODE("\n".join(self._parts))[0], number)
        except (RecursionError, ValueError) as error:
            return self._broken("nested too deeply" if isinstance(error, RecursionError) else str(error))

    def _found(self, document: dict[str, Any], last: int) -> Iterable[Piece]:
        self._parts = []
        if self._is_result(document.keys()):
            lines = dict.fromkeys(document, self._first)
            return (Piece("json", "", self._first, last, lines, document=document),)
        self.others.append(self._first)
        return ()

    def _broken(self, why: str) -> Iterable[Piece]:
        keys = {text for part in self._parts for text, end in _STRING.findall(part) if end}
        last = self._first + len(self._parts) - 1
        self._parts = []
        if self._is_result(keys):
            return (Piece("json", "", self._first, last, {}, broken=f"JSON is cut off or broken: {why}"),)
        self.others.append(self._first)
        return ()

    def _is_result(self, keys: Set[str]) -> bool:
        return any(markers <= keys for markers in self._results)
