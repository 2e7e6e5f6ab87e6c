"""Finds blocks of rows between rules of `=`: with the title in the first rule, or in a line of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from servelab.recorded.readers.pieces import (
    MOST_CHARACTERS,
    MOST_PREFIX,
    MOST_ROWS,
    TITLE,
    BlockRow,
    Lines,
    Piece,
    Prefix,
    block_of,
)

_TITLED = re.compile(r"(?<!=)={3,} [^=].*[^=] ={3,}$")
_TITLE_LINE = re.compile(r"= (?P<title>[A-Z][A-Z +()]+)$")
_RULE = re.compile(r"(?<!=)={50,}$")
_VALUE = re.compile(r"[\d.]+|inf|nan")
_LEAST_WIDTH, _LEAST_RULE = 60, 50
"""Characters of a rule with a title, and of one without; narrower ones are of many programs."""
_MOST_WIDTH = 2000
"""Characters of a line with a rule: to look for one in a longer line takes time that grows with its square."""


@dataclass
class _Frame:
    first: int
    prefix: Prefix
    name: str
    """The last rule, or the title of the first section."""
    rows: list[BlockRow] = field(default_factory=list)
    characters: int = 0

    def content(self, line: str) -> str:
        """A line without the prefix."""
        content = self.prefix.rest(line).strip()
        self.characters += len(content)
        return content

    @property
    def is_full(self) -> bool:
        """Whether it has more than any tool writes."""
        return len(self.rows) > MOST_ROWS or self.characters > MOST_CHARACTERS


def _has_rule(line: str) -> bool:
    return _LEAST_RULE <= len(line) <= _MOST_WIDTH and "===" in line


class TitledFrames:
    """Fed the lines of a log, gives each block below a rule with a title, up to a rule of the same length."""

    def __init__(self) -> None:
        self._frame: _Frame | None = None
        self._last = 0

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The block that a line ends, if it does."""
        self._last, frame = number, self._frame
        if frame is None:
            match = _TITLED.search(line.rstrip()) if _has_rule(line) and TITLE not in line else None
            if match and len(match[0]) >= _LEAST_WIDTH and match.start() <= MOST_PREFIX:
                self._frame = _Frame(number, Prefix(line[: match.start()]), "=" * len(match[0]))
            return ()
        content = frame.content(line)
        if content == frame.name:
            self._frame = None
            return (block_of("frame", frame.first, number, frame.rows),)
        if frame.is_full:
            self._frame = None  # another program's rule
        elif content:
            name, values = _columns(content) if len(content) <= _MOST_WIDTH else (content, "")
            frame.rows.append(BlockRow(number, name, values, content))
        return ()

    def end(self) -> Iterable[Piece]:
        """The block that the end of the log cuts off."""
        frame, why = self._frame, "the block is cut off: its last line of `=` is missing"
        return (block_of("frame", frame.first, self._last, frame.rows, why),) if frame else ()


class Sections:
    """Fed the lines of a log, gives each block of sections whose titles are between two rules.

    Sections follow each other up to the end, or the next first section.
    """

    def __init__(self) -> None:
        self._frame: _Frame | None = None
        self._rule: tuple[int, Prefix] | None = None
        self._section = ""
        self._last = 0

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The block that a line ends, if it does."""
        self._last = number
        if _has_rule(line) and (rule := _RULE.search(line.rstrip())) and rule.start() <= MOST_PREFIX:
            self._rule = (number, Prefix(line[: rule.start()]))
        elif self._rule is not None and self._rule[0] == number - 1 and "= " in line:
            prefix = self._rule[1]
            if title := _TITLE_LINE.fullmatch(prefix.rest(line).strip()):
                return self._titled(number, prefix, title["title"].strip())
        if self._frame is not None and not self._frame.is_full:
            content = self._frame.content(line)
            label, colon, text = content.partition(":")
            if colon:
                name = f"{self._section}: {label.strip()}"
                self._frame.rows.append(BlockRow(number, name, text.strip(), content))
        return ()

    def _titled(self, number: int, prefix: Prefix, title: str) -> Iterable[Piece]:
        self._last = number - 2
        ended = self.end() if self._frame is not None and title == self._frame.name else ()
        if self._frame is None or ended:
            self._frame = _Frame(number - 1, prefix, title)
        self._section = title
        self._frame.rows.append(BlockRow(number, f"= {title}", "", title))
        return ended

    def end(self) -> Iterable[Piece]:
        """The block that the end of the log, or another, ends."""
        frame = self._frame
        return (block_of("frame", frame.first, self._last, frame.rows),) if frame else ()


def _columns(content: str) -> tuple[str, str]:
    """A name and the numbers after it. Read from the end: so each word is looked at only once."""
    words = content.split()
    count = 0
    while count < len(words) - 1 and _VALUE.fullmatch(words[-1 - count]):
        count += 1
    name = content.rsplit(maxsplit=count)[0] if count else content
    return name, content[len(name) :].strip()
