"""A piece: a part of a file that one tool wrote, as a layout's finder found it. It knows layouts, not tools."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from servelab.core.errors import ServelabError

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
class TableRow:
    """A row of a table."""

    line: int
    cells: tuple[str, ...]


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
    table: list[TableRow] = field(default_factory=list)
    """Rows of a table of comma-separated values."""
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
