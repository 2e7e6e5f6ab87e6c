"""Finds blocks of rows between rules of `=`: with the title in the first rule, or in a line of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from servelab.recorded.readers.pieces import MOST_PREFIX, TITLE, BlockRow, Lines, Piece, Prefix, block_of

_TITLED = re.compile(r"(?<!=)={3,} [^=].*[^=] ={3,}$")
_TITLE_LINE = re.compile(r"= (?P<title>[A-Z][A-Z +()]+)$")
_RULE = re.compile(r"(?<!=)={50,}$")
_LEAST_RULE = 50
_VALUE = re.compile(r"[\d.]+|inf|nan")
_LEAST_WIDTH = 60
"""Characters of a rule with a title; narrower ones are of many programs, or of `pieces.ConsoleBlocks`."""
_MOST_WIDTH = 2000
"""Characters of a line with a rule: to look for one in a longer line takes time that grows with its square."""
_MOST_ROWS, _MOST_CHARACTERS = 400, 1 << 16


@dataclass
class _Frame:
    first: int
    prefix: Prefix
    rule: str
    title: str
    rows: list[BlockRow] = field(default_factory=list)
    characters: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it has had as many rows or characters as any tool writes."""
        return len(self.rows) >= _MOST_ROWS or self.characters > _MOST_CHARACTERS


class Frames:
    """Fed the lines of a log, gives each block when it ends.

    A titled rule ends with one of the same length. Sections with a title line follow each other: they are one block up
    to the last rule of a section of details, or the next first section.
    """

    def __init__(self) -> None:
        self._frame: _Frame | None = None
        self._sections: _Frame | None = None
        self._rule: tuple[int, str, Prefix] | None = None
        self._section = ""
        self._last = 0

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The block that a line ends, if it does."""
        self._last = number
        has_rule = _LEAST_RULE <= len(line) <= _MOST_WIDTH and "===" in line
        if not has_rule and self._frame is None and self._sections is None and self._rule is None:
            return ()
        return self._fed(number, line, has_rule)

    def _fed(self, number: int, line: str, has_rule: bool) -> Iterator[Piece]:
        if self._frame is not None:
            yield from self._framed(self._frame, number, line)
        elif has_rule and TITLE not in line and (match := _TITLED.search(line.rstrip())):
            drawn = match[0]
            if len(drawn) >= _LEAST_WIDTH and match.start() <= MOST_PREFIX:
                self._frame = _Frame(number, Prefix(line[: match.start()]), "=" * len(drawn), drawn.strip("= "))
        yield from self._in_sections(number, line, has_rule)

    def end(self) -> Iterator[Piece]:
        """The blocks that the end of the log ends."""
        if self._frame is not None:
            yield self._piece(self._frame, self._last, "the block is cut off: its last line of `=` is missing")
        if self._sections is not None:
            yield self._piece(self._sections, self._last, None)

    def _framed(self, frame: _Frame, number: int, line: str) -> Iterator[Piece]:
        content = frame.prefix.rest(line).strip()
        if content == frame.rule:
            self._frame = None
            yield self._piece(frame, number, None)
            return
        frame.characters += len(content)
        if frame.is_full:
            self._frame = None  # another program's rule
            return
        if content:
            name, values = _columns(content) if len(content) <= _MOST_WIDTH else (content, "")
            frame.rows.append(BlockRow(number, name, values, content))

    def _in_sections(self, number: int, line: str, has_rule: bool) -> Iterator[Piece]:
        if has_rule and (rule := _RULE.search(line.rstrip())) and rule.start() <= MOST_PREFIX:
            self._rule = (number, line[rule.start() :].strip(), Prefix(line[: rule.start()]))
            return
        if self._rule is not None and self._rule[0] == number - 1 and "= " in line:
            _, drawn, prefix = self._rule
            if title := _TITLE_LINE.fullmatch(prefix.rest(line).strip()):
                name = title["title"].strip()
                if self._sections is not None and name == self._sections.title:
                    yield self._piece(self._sections, number - 2, None)
                    self._sections = None
                if self._sections is None:
                    self._sections = _Frame(number - 1, prefix, drawn, name)
                self._section = name
                self._sections.rows.append(BlockRow(number, f"= {name}", "", name))
                return
        sections = self._sections
        if sections is not None and not sections.is_full:
            sections.characters += len(line)
            content = sections.prefix.rest(line).strip()
            label, colon, text = content.partition(":")
            if content and colon:
                sections.rows.append(BlockRow(number, f"{self._section}: {label.strip()}", text.strip(), content))

    @staticmethod
    def _piece(frame: _Frame, last: int, broken: str | None) -> Piece:
        piece = block_of("frame", "", frame.first, frame.first, frame.rows, broken)
        piece.lines.setdefault(f"= {frame.title}", frame.first)
        return replace(piece, last_line=max(last, piece.last_line))


def _columns(content: str) -> tuple[str, str]:
    """A name and the numbers after it. Read from the end: so each word is looked at only once."""
    words = content.split()
    count = 0
    while count < len(words) - 1 and _VALUE.fullmatch(words[-1 - count]):
        count += 1
    name = content.rsplit(maxsplit=count)[0] if count else content
    return name, content[len(name) :].strip()
