"""Finds the tables in a log: of `|`, of box characters, of Markdown. It knows layouts, not tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from servelab.recorded.readers.pieces import MOST_PREFIX, Lines, Piece, Prefix

_DRAWN = (("+", re.compile(r"[-=]+")), ("|", re.compile(r"[-=:]+")), ("|", re.compile(r" +:?-+:? +")))
"""What ends each cell of a line between rows, and what is in it."""
_CORNERS = re.compile("[┏┡├└╒╞╘┌╟╠╚╔╭╰┣┗╓╙]")
_ENDS = frozenset("┓┩┤┘╕╡╛┐╢╣╝╗╮╯┫┛╖╜")
_BOX = frozenset("─━═┄┈╌┬┳╤┼╇╪┴┻╧╦╬╩╥╨╫┯┷┿╋┏┡├└╒╞╘┌╟╠╚╔╭╰┣┗╓╙┓┩┤┘╕╡╛┐╢╣╝╗╮╯┫┛╖╜")
_BOTTOM = frozenset("└╘╚╰┗╙")
_BEGINS = re.compile("[|+┏╒┌╔╭┣]")
_BARS = "|│┃║"
_CELL = re.compile(f"[{_BARS}]")
_MOST_ROWS, _MOST_FOREIGN, _MOST_CHARACTERS = 2000, 50, 1 << 20
"""Rows of a table, lines of others between its rows, and characters of all its rows."""


@dataclass(frozen=True)
class GridRow:
    """A row of a table."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class DrawnTable:
    """A table: its rows in groups, as rules divide them. The first group is the header."""

    title: str
    """The line before it."""
    first_line: int
    last_line: int
    groups: tuple[tuple[GridRow, ...], ...]
    broken: str | None = None
    """Why its rows may not be all that its tool printed."""

    @property
    def header(self) -> tuple[str, ...]:
        """Cells of the first row."""
        return self.groups[0][0].cells if self.groups else ()

    @property
    def rows(self) -> list[GridRow]:
        """Rows below the header."""
        return [row for group in self.groups[1:] for row in group]

    @property
    def names(self) -> dict[str, int]:
        """Texts of the header and of the first column, and their lines."""
        header = [(cell, row.line) for row in (self.groups[0] if self.groups else ()) for cell in row.cells]
        return dict([*((row.cells[0], row.line) for row in reversed(self.rows)), *reversed(header)])

    def same_text(self, other: DrawnTable) -> bool:
        """Whether the other has the same cells."""
        return [[row.cells for row in group] for group in self.groups] == [
            [row.cells for row in group] for group in other.groups
        ]


@dataclass
class _Open:
    prefix: Prefix
    title: str
    first_line: int
    last_line: int
    closed_by: str
    """`bottom`: a rule that only ends tables; `rule`: any rule; `nothing`: no rule."""
    groups: list[list[GridRow]] = field(default_factory=list)
    rows: int = 0
    foreign: int = 0
    characters: int = 0
    after_rule: bool = True


class Grids:
    """Fed the lines of a log, gives each table of a result when it ends.

    `results` are the names that readers know theirs by. Tables of other programs are counted in `others`, with the line
    of the first.
    """

    def __init__(self, results: Collection[frozenset[str]]) -> None:
        self._results = results
        self._open: _Open | None = None
        self.others: list[int] = []

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The table that a line ends, if it does."""
        table = self._open
        if table is None:
            if (start := _rule(line)) is not None and _BEGINS.search(line):
                self._begin(number, line, start, before)
            return ()
        if table.closed_by == "nothing" and number > table.last_line + 1:  # an empty line
            return (*self._close(None), *self.feed(number, line, before))
        return self._continue(table, number, line, before)

    def end(self) -> Iterable[Piece]:
        """The table that the end of the log ends."""
        return self._close(None)

    def _begin(self, number: int, line: str, start: int, before: Lines) -> None:
        prefix = Prefix(line[:start])
        header, text = before[-1] if before else (0, "")
        table = _Open(prefix, text.strip(), number, number, "bottom" if line[start] in _BOX else "rule")
        if line[start] == "|" and header:
            above = prefix.rest(text).strip()
            if _is_row(above) and line[start:].count("|") == above.count("|"):
                table.title = before[0][1].strip() if len(before) == 2 else ""
                table.first_line, table.closed_by = header, "nothing"
                table.groups.append([GridRow(header, _cells(above))])
        self._open = table

    def _continue(self, table: _Open, number: int, line: str, before: Lines) -> Iterable[Piece]:
        content = table.prefix.rest(line).strip()
        if _rule(content) == 0:
            table.after_rule, table.last_line = True, number
            if content[0] in _BOTTOM:
                return self._close("")
        elif _is_row(content):
            if table.after_rule:
                table.groups.append([])
            table.groups[-1].append(GridRow(number, _cells(content)))
            table.after_rule, table.last_line, table.rows = False, number, table.rows + 1
            table.characters += len(content)
            if table.rows > _MOST_ROWS or table.characters > _MOST_CHARACTERS:
                return self._close("it has more than 2,000 rows or 1 MiB")
        elif table.closed_by == "nothing" or (table.closed_by == "rule" and table.after_rule and table.groups):
            pieces = self._close(None)
            if (start := _rule(line)) is not None:
                self._begin(number, line, start, before)
            return pieces
        elif content:
            table.foreign += 1
            if table.foreign > _MOST_FOREIGN:
                return self._close("its last line does not follow within 50 lines of others")
        return ()

    def _close(self, why: str | None) -> Iterable[Piece]:
        """`why` is empty for a table that ended with its last rule, None where the log says no more of it."""
        table, self._open = self._open, None
        if table is None or not table.groups:
            return ()
        if why is None and (table.closed_by == "bottom" or (table.closed_by == "rule" and not table.after_rule)):
            why = "its last line is missing"
        widths = {len(row.cells) for group in table.groups for row in group}
        if len(widths) > 1 and not why:
            why = f"rows have {min(widths)} to {max(widths)} columns"
        groups = tuple(tuple(group) for group in table.groups)
        broken = f"the table is cut off or broken: {why}" if why else None
        grid = DrawnTable(table.title, table.first_line, table.last_line, groups, broken)
        names = grid.names
        if not any(each <= names.keys() for each in self._results):
            self.others.append(grid.first_line)
            return ()
        return (Piece("grid", "", grid.first_line, grid.last_line, names, grids=[grid], broken=broken),)


def _rule(line: str) -> int | None:
    """Where a line between rows begins in a line; None if there is none. Looks from its end: each cell once."""
    text = line.rstrip()
    last = text[-1:]
    start = None
    if last in _ENDS:
        word = text.rsplit(maxsplit=1)[-1]
        if (corner := _CORNERS.search(word)) and _BOX.issuperset(drawn := word[corner.start() :]):
            start = len(text) - len(drawn)
        return start if start is not None and start <= MOST_PREFIX else None
    if last != "+" and last != "|":
        return None
    for mark, cell in _DRAWN:
        if mark != last:
            continue
        start, end = None, len(text) - 1
        while (before := text.rfind(mark, 0, end)) >= 0 and cell.fullmatch(text, before + 1, end):
            start = end = before
        if start is not None and start <= MOST_PREFIX:
            return start
    return None


def _is_row(content: str) -> bool:
    return len(content) > 2 and content[0] in _BARS and content[-1] in _BARS


def _cells(content: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in _CELL.split(content[1:-1]))


def gathered(pieces: Iterable[Piece], orders: Iterable[tuple[frozenset[str], ...]]) -> Iterator[Piece]:
    """Pieces of a file, where the tables of one result are one piece; tables that belong to none stay alone.

    `orders` gives for each reader the names in its first table, and those in the others that may follow. A result that
    is printed twice in a row counts once.
    """
    known = list(orders)
    held: Piece | None = None
    order: tuple[frozenset[str], ...] = ()
    used: set[int] = set()
    last: Piece | None = None
    for piece in pieces:
        if piece.form == "grid":
            follows = next((n for n, names in enumerate(order) if n and n not in used and names <= piece.names), None)
            if held is not None and follows is not None:
                used.add(follows)
                held = _joined(held, piece)
                continue
            begins = next((each for each in known if each[0] <= piece.names), None)
            if begins is None:
                if not any(names <= piece.names for each in known for names in each):
                    yield piece
                    continue
                begins = ()
            if held is not None and not _same(held, last):
                yield held
            last, held, order, used = held or last, piece, begins, set()
            continue
        if held is not None and not _same(held, last):
            yield held
        last, held, order = None, None, ()
        yield piece
    if held is not None and not _same(held, last):
        yield held


def _joined(piece: Piece, other: Piece) -> Piece:
    return replace(
        piece,
        last_line=other.last_line,
        lines={**other.lines, **piece.lines},
        grids=[*piece.grids, *other.grids],
        broken=piece.broken or other.broken,
    )


def _same(piece: Piece, other: Piece | None) -> bool:
    if other is None or len(piece.grids) != len(other.grids):
        return False
    return all(one.same_text(two) for one, two in zip(piece.grids, other.grids, strict=True))
