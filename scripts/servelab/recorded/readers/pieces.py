"""A piece: a part of a file that one tool wrote. Finders look for those of a layout; they know layouts, not tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from servelab.core.errors import ServelabError

MOST_PREFIX = 500
"""Characters before a block's header: what a logger writes before each line."""
MOST_JSON_BYTES = 128 << 20
"""Of a file of JSON documents or a page, which are read whole. A console log may have any size."""
MOST_ROWS, MOST_CHARACTERS = 2000, 1 << 20
"""Lines of a block or table (tools write 20 to 80), and all their characters."""
SECTION = re.compile(r"-{2,} ?[^-=].*?[^-=] ?-{2,}|={2,}![A-Z ]+!={2,}")
"""Title of a section, or TensorRT-LLM's warning of failed requests."""
_MOST_SHOWN = 1000
"""Characters of a message, in which a log may be quoted."""
_MOST_PASSED = 10_000
"""Lines that a window keeps after they were looked at."""


class ReadError(ServelabError):
    """A block that cannot be read without a wrong figure; the message begins `file:line:` and is one printable line."""

    def __init__(self, text: str) -> None:
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        super().__init__("".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown))


@lru_cache(maxsize=1024)
def _like(lead: str) -> re.Pattern[str]:
    parts = re.split(r"(\d+|\s+)", lead)
    made = (re.escape(part) if not n % 2 else r"\s*+" if part.isspace() else r"\d++" for n, part in enumerate(parts))
    return re.compile("".join(made))


class Prefix:
    """The text of a logger before each line, as before the first line; digits and spaces may differ."""

    def __init__(self, lead: str) -> None:
        self._pattern = _like(re.sub(r"\d+", "0", lead))

    def end(self, line: str) -> int | None:
        """Its end in a line; None if the line does not begin with it."""
        match = self._pattern.match(line)
        return match.end() if match else None

    def rest(self, line: str) -> str:
        """The rest of a line behind it, without spaces around; the whole line if it does not begin with it."""
        return line[self.end(line) or 0 :].strip()


class Entry(NamedTuple):
    """A name and its value, in a line of a block, a cell of a table, or a key of a document."""

    name: str
    """Empty if a line of a block has none."""
    value: Any
    """A text as printed, or a value of JSON."""
    line: int
    statistic: str | None = None
    """The statistic that a column gives, if the name does not."""
    raw: str = ""
    """The whole line, shown if no reader knows it."""


class TableRow(NamedTuple):
    """A row of a table."""

    line: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class TextTable:
    """A table: its rows in groups, as rules divide them. The first group is the header."""

    groups: list[list[TableRow]]

    @property
    def header(self) -> tuple[str, ...]:
        """Cells of the first row."""
        return self.groups[0][0].cells

    @property
    def rows(self) -> list[TableRow]:
        """Rows below the header."""
        return [row for group in self.groups[1:] for row in group]


@dataclass(frozen=True)
class Piece:
    """A part of a file that one tool wrote."""

    form: str
    first_line: int
    last_line: int
    lines: Mapping[str, int]
    """Name (label, key, metric of a row) → its first line."""
    rows: Sequence[Entry] = ()
    """Lines of a block, between header and footer, or below a table."""
    document: dict[str, Any] = field(default_factory=dict)
    """A JSON document."""
    tables: Sequence[TextTable] = ()
    broken: str | None = None
    """Why no tool's reader can read it."""
    file: str = ""

    def error(self, text: str, line: int | None = None) -> ReadError:
        """An error at a line, by default its first."""
        return ReadError(f"{self.file}:{line or self.first_line}: {text}")


Line = tuple[int, str]
"""A visible line with its number in the file, from 1."""


class Window:
    """Lines that are read when they are asked for, and forgotten when they are passed."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._coming = lines
        self._held: list[Line] = []
        self._forgotten = 0

    def get(self, at: int) -> Line | None:
        """The line at a position; None after the last."""
        missing = at - self._forgotten - len(self._held) + 1
        if missing > 0:
            self._held += islice(self._coming, missing)
        return self._held[at - self._forgotten] if at - self._forgotten < len(self._held) else None

    def after(self, at: int) -> Iterator[tuple[int, int, str]]:
        """The positions, numbers and texts of the lines after a position."""
        while line := self.get(at := at + 1):
            yield at, *line

    def near(self, at: int) -> Iterator[tuple[int, int, str]]:
        """Those, but no more than any tool writes."""
        size = 0
        for each in islice(self.after(at), MOST_ROWS):
            if (size := size + len(each[2])) > MOST_CHARACTERS:
                return
            yield each

    def forget(self, at: int) -> None:
        """Forgets lines before a position."""
        if at - self._forgotten > _MOST_PASSED:
            del self._held[: at - self._forgotten]
            self._forgotten = at


Found = tuple[Sequence[Piece], int] | None
"""The pieces that begin at a line, and the position of the first line that the finder has not looked at."""
Finder = Callable[[Window, int, Line, Line], Found]
"""Looks at the line at a position, given that line and the last one above with a text, and from there ahead."""


def find(lines: Iterable[Line], finders: Iterable[Finder]) -> Iterator[Piece]:
    """The pieces of a text, by their first lines. A finder does not look twice at a line."""
    window = Window(iter(lines))
    free = dict.fromkeys(finders, 0)
    at, above = 0, (0, "")
    while line := window.get(at):
        for finder, begins in free.items():
            if begins <= at and (found := finder(window, at, line, above)):
                pieces, free[finder] = found
                yield from pieces
        above = line if line[1].strip() else above
        at += 1
        window.forget(at)
