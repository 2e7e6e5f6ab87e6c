"""Finds the tables in a log: of `|`, of box characters, of Markdown. It knows layouts, not tools."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Any

from servelab.recorded.readers.pieces import (
    MOST_CHARACTERS,
    MOST_JSON_BYTES,
    MOST_PREFIX,
    MOST_ROWS,
    BlockRow,
    Lines,
    Piece,
    Prefix,
    TableRow,
)

_DRAWN = (("+", re.compile(r"[-=]+")), ("|", re.compile(r"[-=:]+")), ("|", re.compile(r" +:?-+:? +")))
"""What ends each cell of a line between rows, and what is in it."""
_CORNERS = re.compile("[┏┡├└╒╞╘┌╟╠╚╔╭╰┣┗╓╙]")
_ENDS = frozenset("┓┩┤┘╕╡╛┐╢╣╝╗╮╯┫┛╖╜")
_BOX = frozenset("─━═┄┈╌┬┳╤┼╇╪┴┻╧╦╬╩╥╨╫┯┷┿╋┏┡├└╒╞╘┌╟╠╚╔╭╰┣┗╓╙┓┩┤┘╕╡╛┐╢╣╝╗╮╯┫┛╖╜")
_BOTTOM = frozenset("└╘╚╰┗╙")
_BEGINS = re.compile("[|+┏╒┌╔╭┣]")
_BELOW = re.compile(r"([A-Z][\w ]+ \([\w/ ]+\)): ([\d.,]+)")
"""A figure in a line below a table."""
_BARS = "|│┃║"
_CELL = re.compile(f"[{_BARS}]")
_MOST_FOREIGN = 50
"""Lines of others between the rows of a table."""


@dataclass
class DrawnTable:
    """A table: its rows in groups, as rules divide them. The first group is the header."""

    prefix: Prefix
    first_line: int
    last_line: int
    ends_by: str
    """What ends it: `bottom`, a rule that only ends tables; `rule`, any rule; `nothing`, another line."""
    groups: list[list[TableRow]] = field(default_factory=list)
    foreign: int = 0
    characters: int = 0
    after_rule: bool = True

    @property
    def header(self) -> tuple[str, ...]:
        """Cells of the first row."""
        return self.groups[0][0].cells

    @property
    def rows(self) -> list[TableRow]:
        """Rows below the header."""
        return [row for group in self.groups[1:] for row in group]

    @property
    def cells(self) -> list[list[tuple[str, ...]]]:
        """All cells."""
        return [[row.cells for row in group] for group in self.groups]

    def add(self, number: int, content: str) -> None:
        """Adds a row."""
        if self.after_rule:
            self.groups.append([])
        self.groups[-1].append(TableRow(number, tuple(cell.strip() for cell in _CELL.split(content[1:-1]))))
        self.after_rule, self.last_line = False, number
        self.characters += len(content)

    def piece(self, why: str | None) -> Piece:
        """The piece of the table, named by its header and first column; `why` it is cut off, if it is."""
        if why is None and (self.ends_by == "bottom" or (self.ends_by == "rule" and not self.after_rule)):
            why = "its last line is missing"
        if len({len(row.cells) for group in self.groups for row in group}) > 1 and not why:
            why = "its rows have different numbers of columns"
        names = [(row.cells[0], row.line) for row in reversed(self.rows)]
        names += [(cell, row.line) for row in reversed(self.groups[0]) for cell in reversed(row.cells)]
        broken = f"the table is cut off or broken: {why}" if why else None
        return Piece("grid", "", self.first_line, self.last_line, dict(names), tables=[self], broken=broken)


class Tables:
    """Fed the lines of a log, gives each table of a result when it ends.

    `results` are the names that readers know theirs by, `below` those of tools that print lines `name: number` below a
    table. Tables of other programs are counted in `others`, by line.
    """

    def __init__(
        self, results: Collection[frozenset[str]], below: Collection[frozenset[str]], others: list[int]
    ) -> None:
        self._results, self._below, self._others = results, below, others
        self._open: DrawnTable | None = None
        self._ended: Piece | None = None

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The table that a line ends, if it does."""
        table = self._open
        if self._ended is not None:
            if match := _BELOW.fullmatch(line.strip()):
                self._ended.rows.append(BlockRow(number, match[1], match[2], line.strip()))
                self._ended = replace(self._ended, last_line=number)
                return ()
            ended, self._ended = self._ended, None
            return (ended, *self.feed(number, line, before))
        if table is None:
            if (start := _rule(line)) is not None and _BEGINS.search(line):
                self._begin(number, line, start, before)
            return ()
        content = table.prefix.rest(line).strip()
        if table.ends_by == "nothing" and number > table.last_line + 1:  # an empty line
            return (*self._close(None), *self.feed(number, line, before))
        if _rule(content) == 0:
            table.after_rule, table.last_line = True, number
            return self._close("") if content[0] in _BOTTOM else ()
        if _is_row(content):
            table.add(number, content)
            is_full = table.characters > MOST_CHARACTERS or sum(map(len, table.groups)) > MOST_ROWS
            return self._close("it has more than 2,000 rows or 1 MiB") if is_full else ()
        if table.ends_by == "nothing" or (table.ends_by == "rule" and table.after_rule and table.groups):
            return (*self._close(None), *self.feed(number, line, before))
        table.foreign += bool(content)
        return self._close("its last line does not follow") if table.foreign > _MOST_FOREIGN else ()

    def end(self) -> Iterable[Piece]:
        """The table that the end of the log ends."""
        closed = self._close(None)
        return (*closed, *([self._ended] if self._ended else []))

    def _begin(self, number: int, line: str, start: int, before: Lines) -> None:
        prefix = Prefix(line[:start])
        table = DrawnTable(prefix, number, number, "bottom" if line[start] in _BOX else "rule")
        header, text = before[-1] if before else (0, "")
        above = prefix.rest(text).strip()
        if line[start] == "|" and _is_row(above) and line[start:].count("|") == above.count("|"):
            table.ends_by = "nothing"
            table.add(header, above)
            table.first_line, table.last_line, table.after_rule = header, number, True
        self._open = table

    def _close(self, why: str | None) -> Iterable[Piece]:
        """`why` is empty for a table that ended with its last rule, None where the log says no more of it."""
        table, self._open = self._open, None
        if table is None or not table.groups:
            return ()
        piece = table.piece(why)
        if any(names <= piece.lines.keys() for names in self._below):
            self._ended = piece
        elif any(names <= piece.lines.keys() for names in self._results):
            return (piece,)
        else:
            self._others.append(piece.first_line)
        return ()


def _rule(line: str) -> int | None:
    """Where a line between rows begins in a line; None if there is none. Looks from its end: each cell once."""
    text = line.rstrip()
    last = text[-1:]
    start = None
    if last in _ENDS:
        word = text.rsplit(maxsplit=1)[-1]
        if (corner := _CORNERS.search(word)) and _BOX.issuperset(drawn := word[corner.start() :]):
            start = len(text) - len(drawn)
    for mark, cell in _DRAWN if last in ("+", "|") else ():
        end = len(text) - 1
        while mark == last and (before := text.rfind(mark, 0, end)) >= 0 and cell.fullmatch(text, before + 1, end):
            start = end = before
        if start is not None:
            break
    return start if start is not None and start <= MOST_PREFIX else None


def _is_row(content: str) -> bool:
    return len(content) > 2 and content[0] in _BARS and content[-1] in _BARS


def gathered(pieces: Iterable[Piece], orders: Collection[tuple[frozenset[str], ...]]) -> Iterator[Piece]:
    """Pieces of a file, where the tables of one result are one piece.

    `orders` gives for each reader the names in its first table, and those in the others that may follow. A result that
    is printed twice in a row counts once.
    """
    held: Piece | None = None
    last: Piece | None = None
    awaited: list[frozenset[str]] = []
    for piece in pieces:
        follows = next((names for names in awaited if piece.form == "grid" and names <= piece.lines.keys()), None)
        if held is not None and follows is not None:
            awaited.remove(follows)
            held = replace(
                held,
                last_line=piece.last_line,
                lines={**piece.lines, **held.lines},
                tables=[*held.tables, *piece.tables],
                broken=held.broken or piece.broken,
            )
            continue
        yield from _unlike(held, last)
        if piece.form == "grid":
            last, held = held or last, piece
            awaited = next(([*rest] for first, *rest in orders if first <= piece.lines.keys()), [])
        else:
            last, held, awaited = None, None, []
            yield piece
    yield from _unlike(held, last)


def _unlike(piece: Piece | None, other: Piece | None) -> Iterator[Piece]:
    """The piece, unless the other has the same cells."""
    cells, others = ([table.cells for table in each.tables] if each else [] for each in (piece, other))
    if piece is not None and cells != others:
        yield piece


_DECODE = json.JSONDecoder().raw_decode
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)("?)')
"""A text, and what ends it. One without an end is matched too, so that no character is looked at twice."""
_CONTINUES = re.compile(r'\s*(?:["\]}{]|\[(?!\d+\] )|-?\d|true|false|null|NaN|-?Infinity)')
_MOST_WITHIN = 3
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
        if self._foreign <= _MOST_WITHIN and not _START.search(line):
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
