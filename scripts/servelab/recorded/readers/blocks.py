"""Finds blocks of rows between rules of `=`: with the title in the first rule, or in a line of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from servelab.recorded.readers.pieces import (
    MOST_CHARACTERS,
    MOST_PREFIX,
    MOST_ROWS,
    SECTION,
    BlockRow,
    Lines,
    Piece,
    Prefix,
)

_TITLE = "Serving Benchmark Result"
_HEADER = f"{'=' * 12} {_TITLE} {'=' * 12}"
_HALF_HEADER = re.compile(rf"===\s*{_TITLE}|{_TITLE}\s*===")
_FOOTER = "=" * 50
_TITLED = re.compile(r"(?<!=)={3,} [^=].*[^=] ={3,}$")
_SECTION_TITLE = re.compile(r"= (?P<title>[A-Z][A-Z +()]+)$")
_RULE = re.compile(r"(?<!=)={50,}$")
_VALUE = re.compile(r"[\d.]+|inf|nan")
_LEAST_WIDTH = 60
"""Characters of a rule with a title; other programs have narrower ones."""
_MOST_WIDTH = 2000
"""Characters of a line with a rule: to look for one in a longer line takes time that grows with its square."""


@dataclass
class _Block:
    first: int
    prefix: Prefix
    ends_with: str
    """Its last rule, or the title of its first section."""
    form: str = "frame"
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

    def piece(self, last: int, why: str | None = None) -> Piece:
        """Its piece; `why` it is cut off, if it is."""
        lines: dict[str, int] = {}
        for row in self.rows:
            if row.label:
                lines.setdefault(row.label, row.line)
        last = max([last, *(row.line for row in self.rows)])
        broken = f"the block is cut off: {why}" if why else None
        return Piece(self.form, "", self.first, last, lines, rows=self.rows, broken=broken)


class TitledBlocks:
    """Fed the lines of a log, gives each block below a rule with a title, up to a rule of the same length.

    `is_known` recognises labels of console blocks: the end of a block without a header is an error, but a line of 50
    `=` in another program's log is not.
    """

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._open: _Block | None = None
        self._last = 0

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The blocks that a line ends."""
        self._last = number
        if _TITLE in line and _HALF_HEADER.search(line):
            return self._headed(number, line.rstrip())
        if self._open is not None:
            return self._inside(self._open, number, line)
        if "===" not in line or len(line) > _MOST_WIDTH:
            return ()
        match = _TITLED.search(line.rstrip())
        if match and len(match[0]) >= _LEAST_WIDTH and match.start() <= MOST_PREFIX:
            self._open = _Block(number, Prefix(line[: match.start()]), "=" * len(match[0]))
            return ()
        lead, footer, rest = line.partition(_FOOTER)
        end = Prefix(lead).end(before[-1][1]) if before and footer and not rest.strip() else None
        if end is not None and self._is_known(_labelled(0, before[-1][1][end:].strip()).label):
            return (_Block(number, Prefix(""), "", "console").piece(number, "its header is missing"),)
        return ()

    def end(self) -> Iterable[Piece]:
        """The block that the end of the log cuts off."""
        return self._cut(self._last, "its last line of `=` is missing")

    def _headed(self, number: int, line: str) -> Iterable[Piece]:
        is_open = self._open is not None and self._open.form == "console"
        pieces = self._cut(number - 1, f"line {number} begins another") if is_open else ()
        lead, header, rest = line.partition(_HEADER)
        self._open = _Block(number, Prefix(lead), _FOOTER, "console")
        if header and not rest and len(lead) <= MOST_PREFIX:
            return pieces
        whole = re.search(rf"(?<!=)(=+) {_TITLE} \1$", line)
        why = "its header is cut off, or line breaks are lost"
        if whole:
            why = f"its header has {len(whole[1])} `=` on each side, not 12: it was changed, or is another program's"
        return (*pieces, *self._cut(number, why))

    def _cut(self, last: int, why: str) -> tuple[Piece, ...]:
        block, self._open = self._open, None
        return (block.piece(last, why),) if block else ()

    def _inside(self, block: _Block, number: int, line: str) -> Iterable[Piece]:
        content = block.content(line)
        if content == block.ends_with:
            self._open = None
            return (block.piece(number),)
        if block.is_full:
            block.rows = []
            return self._cut(number, "its last line of `=` does not follow within 2,000 lines and 1 MiB")
        if content:
            block.rows.append(_labelled(number, content) if block.form == "console" else _in_columns(number, content))
        return ()


class SectionBlocks:
    """Fed the lines of a log, gives each block of sections whose titles are between two rules.

    Sections follow each other up to the end, or the next first section.
    """

    def __init__(self) -> None:
        self._open: _Block | None = None
        self._rule: tuple[int, Prefix] | None = None
        self._section = ""
        self._last = 0

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The block that a line ends, if it does."""
        self._last = number
        if "=====" in line and len(line) <= _MOST_WIDTH and (rule := _RULE.search(line.rstrip())):
            self._rule = (number, Prefix(line[: min(rule.start(), MOST_PREFIX)]))
        elif (
            self._rule is not None
            and self._rule[0] == number - 1
            and (match := _SECTION_TITLE.fullmatch(self._rule[1].rest(line).strip()))
        ):
            return self._titled(number, self._rule[1], match["title"].strip())
        if self._open is not None and not self._open.is_full:
            content = self._open.content(line)
            label, colon, text = content.partition(":")
            if colon:
                self._open.rows.append(BlockRow(number, f"{self._section}: {label.strip()}", text.strip(), content))
        return ()

    def end(self) -> Iterable[Piece]:
        """The block that the end of the log ends."""
        return (self._open.piece(self._last),) if self._open else ()

    def _titled(self, number: int, prefix: Prefix, title: str) -> Iterable[Piece]:
        is_again = self._open is not None and title == self._open.ends_with
        ended = (self._open.piece(number - 2),) if self._open is not None and is_again else ()
        if self._open is None or ended:
            self._open = _Block(number - 1, prefix, title)
        self._section = title
        self._open.rows.append(BlockRow(number, f"= {title}", "", title))
        return ended


class LineBlocks:
    """Fed the lines of a log, gives each block from `concurrency` and `elapsed_time` to the rate in a minute."""

    def __init__(self) -> None:
        self._open: _Block | None = None

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The block that a line ends."""
        if "elapsed_time: " in line and before and (start := before[-1][1].find("concurrency: ")) >= 0:
            self._open = _Block(before[-1][0], Prefix(before[-1][1][: min(start, MOST_PREFIX)]), "RPM", "lines")
            self._add(*before[-1])
        if self._open is None:
            return ()
        row = self._add(number, line)
        if not row.label.startswith(self._open.ends_with) and not self._open.is_full:
            return ()
        return self.end()

    def end(self) -> Iterable[Piece]:
        """The block that its last line, or the end of the log, ends."""
        block, self._open = self._open, None
        return (block.piece(block.first),) if block else ()

    def _add(self, number: int, line: str) -> BlockRow:
        assert self._open is not None
        row = _labelled(number, self._open.content(line))
        self._open.rows += [row] if row.label else []
        return row


_NOTE = re.compile(r"(?<=\d)\s{2,}[^\d\s].*")
"""What somebody wrote behind a figure: `3337.24   ← key metric`."""


def _labelled(number: int, content: str) -> BlockRow:
    """A row `label: text`."""
    label, colon, text = content.partition(":")
    if not label or not colon or (text and not text[0].isspace()) or SECTION.fullmatch(content):
        return BlockRow(number, "", "", content)
    label, text = label.strip(), _NOTE.sub("", text.strip())
    return BlockRow(number, f"{label} (%)" if text.endswith("%") else label, text, content)


def _in_columns(number: int, content: str) -> BlockRow:
    """A name and the numbers after it. Read from the end: so each word is looked at only once."""
    words = content.split() if len(content) <= _MOST_WIDTH else []
    count = 0
    while count < len(words) - 1 and _VALUE.fullmatch(words[-1 - count]):
        count += 1
    name = content.rsplit(maxsplit=count)[0] if count else content
    return BlockRow(number, name, content[len(name) :].strip(), content)
