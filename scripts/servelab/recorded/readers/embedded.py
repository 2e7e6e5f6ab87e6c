"""Finds data in a log: JSON objects, and tables of comma-separated values."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Set
from typing import Any

from servelab.recorded.readers.pieces import (
    MOST_CHARACTERS,
    MOST_JSON_BYTES,
    MOST_PREFIX,
    Lines,
    Piece,
    Prefix,
    TableRow,
)

_DECODE = json.JSONDecoder().raw_decode
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)("?)')
"""A text, and what ends it. One without an end is matched too, so that no character is looked at twice."""
_CONTINUES = re.compile(r'\s*(?:["\]}{]|\[(?!\d+\] )|-?\d|true|false|null|NaN|-?Infinity)')
_MOST_FOREIGN = 3
"""Lines of a log within an object."""


class EmbeddedJson:
    """Fed the lines of a text, gives each JSON object of a result when it ends.

    `results` are the keys by which readers know theirs. Objects of other programs are counted in `others`, by line.
    An object that ends too early is broken if its text has such keys.
    """

    def __init__(self, results: Collection[frozenset[str]], others: list[int]) -> None:
        self._results, self._others = results, others
        self._parts: list[str] = []
        self._first = self._depth = self._length = self._foreign = 0
        self._prefix = Prefix("")

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
        self._foreign += 1
        if self._foreign <= _MOST_FOREIGN and not _START.search(line):
            return ()
        return (*self._broken("other lines are in it"), *self._begun(number, line))

    def end(self) -> Iterable[Piece]:
        """The object that the end of the text cuts off."""
        return self._broken("it does not end") if self._parts else ()

    def _begun(self, number: int, line: str) -> Iterable[Piece]:
        match = _START.search(line)
        if match is None or match.start() > MOST_PREFIX:
            return ()
        self._first, self._depth, self._length, self._foreign = number, 0, 0, 0
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
        self._others.append(self._first)
        return ()

    def _broken(self, why: str) -> Iterable[Piece]:
        keys = {text for part in self._parts for text, end in _STRING.findall(part) if end}
        last = self._first + len(self._parts) - 1
        self._parts = []
        if self._is_result(keys):
            return (Piece("json", "", self._first, last, {}, broken=f"JSON is cut off or broken: {why}"),)
        self._others.append(self._first)
        return ()

    def _is_result(self, keys: Set[str]) -> bool:
        return any(markers <= keys for markers in self._results)


class Csv:
    """Fed the lines of a log, gives each table of comma-separated values of a result when it ends.

    `heads` are names in the first rows that readers know theirs by. A table whose heads are the keys of a saved object
    (`keys`) is as many objects as it has rows.
    """

    def __init__(self, heads: Collection[frozenset[str]], keys: Collection[frozenset[str]]) -> None:
        self._heads, self._keys = heads, keys
        self._rows: list[TableRow] = []
        self._length = self._last = 0

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The table that a line ends, if it does."""
        self._last = number
        if self._rows and not line.strip():
            return ()
        if self._rows and self._goes_on(line):
            return self._add(number, line)
        ended = list(self._ended(None if self._length < MOST_CHARACTERS else "a table of more than 1 MiB"))
        if line.count(",") > 1 and len(line) < MOST_CHARACTERS:
            cells = set(_cells(line))
            if any(names <= cells for names in (*self._heads, *self._keys)):
                self._add(number, line)
        return ended

    def end(self) -> Iterable[Piece]:
        """The table that the end of the log ends, or cuts off in its last line."""
        is_cut = bool(self._rows) and self._rows[-1].line == self._last
        return self._ended("the table's last line is cut off" if is_cut else None)

    def _goes_on(self, line: str) -> bool:
        """Whether a line is a row: saved objects end with any other line, other tables only with a fence."""
        is_row = "," in line or not any(names <= set(self._rows[0].cells) for names in self._keys)
        return is_row and not line.lstrip().startswith(("```", "~~~")) and self._length < MOST_CHARACTERS

    def _add(self, number: int, line: str) -> Iterable[Piece]:
        self._length += len(line)
        self._rows.append(TableRow(number, tuple(_cells(line))))
        return ()

    def _ended(self, why: str | None) -> Iterable[Piece]:
        rows, self._rows, self._length = self._rows, [], 0
        if not rows:
            return
        head, first, last = rows[0].cells, rows[0].line, rows[-1].line
        if not any(names <= set(head) for names in self._keys):
            lines = {row.cells[0]: row.line for row in reversed(rows)} | dict.fromkeys(head, first)
            yield Piece("csv", "", first, last, lines, table=rows, broken=why)
            return
        for row in rows[1:]:
            is_short = len(row.cells) != len(head)
            text = f"{len(row.cells)} columns where the table has {len(head)}: the row is cut off" if is_short else None
            content = {name: _value(text) for name, text in zip(head, row.cells, strict=False) if name and text}
            lines = dict.fromkeys(head, row.line)
            broken = text or (why if row is rows[-1] else None)
            yield Piece("json", "", row.line, row.line, lines, document=content, broken=broken)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _value(text: str) -> Any:
    """A cell as the value that was saved: a number, a truth, a text."""
    try:
        return json.loads(text.replace("True", "true").replace("False", "false"))
    except (ValueError, RecursionError):
        return text
