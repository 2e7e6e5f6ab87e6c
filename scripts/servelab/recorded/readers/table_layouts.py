"""Finds the tables in a log: of `|`, of box characters, of Markdown. It knows layouts, not tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from servelab.recorded.readers.pieces import MOST_PREFIX, Piece, like

_RULES = (
    re.compile(r"[┏┡├└╒╞╘┌╟╠╚╔╭╰┣┗╓╙]\S*[┓┩┤┘╕╡╛┐╢╣╝╗╮╯┫┛╖╜]\s*$"),
    re.compile(r"\+(?:[-=]+\+)+\s*$"),
    re.compile(r"\|(?:[-=:]+\|)+\s*$"),
    re.compile(r"\|(?: +:?-+:? +\|)+\s*$"),
)
"""A line between rows. Each part of a line can be matched in one way only, so the time is in proportion to it."""
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
class Grid:
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

    def same_text(self, other: Grid) -> bool:
        """Whether the other has the same cells."""
        return [[row.cells for row in group] for group in self.groups] == [
            [row.cells for row in group] for group in other.groups
        ]


@dataclass
class _Open:
    prefix: re.Pattern[str]
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
    """Fed the lines of a log, gives each table when it ends."""

    def __init__(self) -> None:
        self._open: _Open | None = None
        self._before: tuple[int, str] = (0, "")
        self._title = ""

    @property
    def is_open(self) -> bool:
        """Whether a table has begun."""
        return self._open is not None

    def feed(self, number: int, line: str) -> Iterator[Piece]:
        """The table that a line ends, if it does."""
        table = self._open
        if table is not None and table.closed_by == "nothing" and number > table.last_line + 1:  # an empty line
            yield from self._close(None)
            table = None
        if table is None:
            if _BEGINS.search(line) and (start := _rule(line)) is not None:
                self._begin(number, line, start)
        else:
            matched = table.prefix.match(line)
            content = (line[matched.end() :] if matched else line).strip()
            yield from self._continue(table, number, line, content)
        if line.strip():
            self._title = self._before[1]
            self._before = (number, line)

    def end(self) -> Iterator[Piece]:
        """The table that the end of the log ends."""
        if self._open is not None:
            yield from self._close(None)

    def _begin(self, number: int, line: str, start: int) -> None:
        prefix = like(line[:start])
        table = _Open(prefix, self._before[1].strip(), number, number, "bottom" if line[start] in _BOX else "rule")
        header, text = self._before
        matched = prefix.match(text)
        above = (text[matched.end() :] if matched else text).strip()
        if line[start] == "|" and header and _is_row(above) and line[start:].count("|") == above.count("|"):
            table.title, table.first_line, table.closed_by = self._title.strip(), header, "nothing"
            table.groups.append([GridRow(header, _cells(above))])
        self._open = table

    def _continue(self, table: _Open, number: int, line: str, content: str) -> Iterator[Piece]:
        if _rule(content) == 0:
            table.after_rule, table.last_line = True, number
            if content[0] in _BOTTOM:
                yield from self._close("")
        elif _is_row(content):
            if table.after_rule:
                table.groups.append([])
            table.groups[-1].append(GridRow(number, _cells(content)))
            table.after_rule, table.last_line, table.rows = False, number, table.rows + 1
            table.characters += len(content)
            if table.rows > _MOST_ROWS or table.characters > _MOST_CHARACTERS:
                yield from self._close("it has more than 2,000 rows or 1 MiB")
        elif table.closed_by == "nothing" or (table.closed_by == "rule" and table.after_rule and table.groups):
            yield from self._close(None)
            if (start := _rule(line)) is not None:
                self._begin(number, line, start)
        elif content:
            table.foreign += 1
            if table.foreign > _MOST_FOREIGN:
                yield from self._close("its last line does not follow within 50 lines of others")

    def _close(self, why: str | None) -> Iterator[Piece]:
        """`why` is empty for a table that ended with its last rule, None where the log says no more of it."""
        table, self._open = self._open, None
        if table is None or not table.groups:
            return
        if why is None and (table.closed_by == "bottom" or (table.closed_by == "rule" and not table.after_rule)):
            why = "its last line is missing"
        widths = {len(row.cells) for group in table.groups for row in group}
        if len(widths) > 1 and not why:
            why = f"rows have {min(widths)} to {max(widths)} columns"
        groups = tuple(tuple(group) for group in table.groups)
        broken = f"the table is cut off or broken: {why}" if why else None
        grid = Grid(table.title, table.first_line, table.last_line, groups, broken)
        file_lines = grid.names
        yield Piece("grid", "", grid.first_line, grid.last_line, file_lines, grids=[grid], broken=broken)


def _rule(line: str) -> int | None:
    """Where a line between rows begins in a line; None if there is none."""
    text = line.rstrip()
    if not text or text[-1] not in "|+┓┩┤┘╕╡╛┐╢╣╝╗╮╯┫┛╖╜":
        return None
    for rule in _RULES:
        match = rule.search(text)
        if match and match.start() <= MOST_PREFIX:
            drawn = text[match.start() :]
            if drawn[0] in "+|" or _BOX.issuperset(drawn):
                return match.start()
    return None


def _is_row(content: str) -> bool:
    return len(content) > 2 and content[0] in _BARS and content[-1] in _BARS


def _cells(content: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in _CELL.split(content[1:-1]))
