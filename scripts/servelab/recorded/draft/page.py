"""A page as a list of its parts: headings, lines of text, code, tables. It may be Markdown, saved HTML or a log.

Nothing in a page is an error: a fence that is not closed ends where the next heading, table or fence begins.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from servelab.recorded.draft.folded import unfolded
from servelab.recorded.draft.markup import Lines, is_html, markdown_of

MOST_BYTES = 64 << 20
"""Of one page; what is beyond is not read, and said."""
_HEADING = re.compile(r"(#{1,6})\s+(\S.*?)(?:\s+#+)?$")
_FENCE = re.compile(r"(`{3,}|~{3,})\s*([^`]*)$")
_STRUCTURE = re.compile(r"#{1,6} \S|\||<details|</details|<summary|\?\?\?|!!! ")
_SEPARATOR = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$")
_ADMONITION = re.compile(r"""(?:\?\?\?\+?|!!!|===)\s+(?:[\w-]+(?:\s+[\w-]+)*\s*)?(?:"(.*)")?$""")
_REGION = re.compile(r"<(table|pre)\b", re.IGNORECASE)
_QUOTE = re.compile(r"\s*(?:> ?)+")
_MOST_LINE, _MOST_CELLS = 20_000, 200
"""Characters of a line of text; cells of a row."""
_MOST_REGION = 5000
"""Lines of a table or text in HTML within Markdown."""


@dataclass(frozen=True)
class Heading:
    """A heading."""

    level: int
    text: str
    index: int
    """Index in the page's lines; so of every part."""


@dataclass(frozen=True)
class Line:
    """A line of text: prose, an item of a list, a title of something that folds."""

    text: str
    index: int


@dataclass(frozen=True)
class Code:
    """What stands in a fence, or a whole log."""

    first: int
    """Index of its first line in the page's lines."""
    last: int
    """Index of its last line."""


@dataclass(frozen=True)
class Table:
    """A table of Markdown or HTML; the first row is its header."""

    rows: tuple[tuple[int, tuple[str, ...]], ...]
    """Index and cells of each row."""


Part = Heading | Line | Code | Table


@dataclass(frozen=True)
class Page:
    """A page or a log."""

    name: str
    lines: Lines
    """Line in the source, and the text."""
    parts: list[Part]
    is_cut: bool = False

    @property
    def text(self) -> str:
        """Its lines, as the readers of results take them."""
        return "\n".join(text for _, text in self.lines)


def read_text(path: Path) -> tuple[str, bool]:
    """The text of a file, and whether it was cut. Bytes that are not UTF-8 come back when it is written again."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    is_cut, content = len(content) > MOST_BYTES, content[:MOST_BYTES]
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace").replace("\r\n", "\n"), is_cut
    return content.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n"), is_cut


def read_page(path: Path) -> Page:
    """A page: Markdown, or HTML where it begins so."""
    text, is_cut = read_text(path)
    if is_html(text):
        lines = markdown_of(text)
    else:
        lines = _with_regions([(number, line) for number, line in enumerate(text.split("\n"), start=1)])
        lines = unfolded(lines)
    lines = [(number, _QUOTE.sub("", line) if line.lstrip().startswith(">") else line) for number, line in lines]
    return Page(path.name, lines, list(_parts(lines)), is_cut)


def read_log(path: Path) -> Page:
    """A log: all of it is code."""
    text, is_cut = read_text(path)
    lines = list(enumerate(text.split("\n"), start=1))
    return Page(path.name, lines, [Code(0, len(lines) - 1)], is_cut)


def _with_regions(lines: Lines) -> Lines:
    """Lines with the tables and texts that are HTML within Markdown turned into Markdown."""
    found: Lines = []
    position = 0
    while position < len(lines):
        number, line = lines[position]
        if region := _REGION.match(line.strip()):
            closing, end = f"</{region[1].lower()}", position
            while end < len(lines) and end - position < _MOST_REGION and closing not in lines[end][1].lower():
                end += 1
            if end < len(lines) and closing in lines[end][1].lower():
                found += markdown_of("\n".join(text for _, text in lines[position : end + 1]), number)
                position = end + 1
                continue
        found.append((number, line))
        position += 1
    return found


def _parts(lines: Lines) -> Iterator[Part]:
    ends = _fences(lines)
    position = 0
    while position < len(lines):
        text = lines[position][1].strip()
        if position in ends:
            end, closed = ends[position]
            yield Code(position + 1, end)
            position = end + (2 if closed else 1)
            continue
        if len(text) <= _MOST_LINE and (heading := _HEADING.fullmatch(text)):
            yield Heading(len(heading[1]), plain(heading[2]), position)
        elif "|" in text and position + 1 < len(lines) and _is_separator(lines[position + 1][1]):
            table = _table(lines, position)
            yield table
            position += len(table.rows) + 1
            continue
        elif _is_underlined(lines, position):
            yield Heading(1 if lines[position + 1][1].strip().startswith("=") else 2, plain(text), position)
            position += 1
        elif admonition := _ADMONITION.fullmatch(text):
            if admonition[1]:
                yield Line(plain(admonition[1]), position)
        elif (shown := plain(text)) and not re.fullmatch(r"[-=*_\s|:]+", shown):
            yield Line(shown, position)
        position += 1


def _is_separator(line: str) -> bool:
    text = line.strip()
    return "-" in text and "|" in text and len(text) < 10_000 and _SEPARATOR.fullmatch(text) is not None


def _is_underlined(lines: Lines, position: int) -> bool:
    """Whether the next line underlines this one, so that it is a heading."""
    text = lines[position][1].strip()
    if not re.match(r"\w", text) or len(text) > 120 or position + 1 == len(lines) or ":  " in text:
        return False
    below = lines[position + 1][1].strip()
    if position and lines[position - 1][1].strip():
        return False
    return len(below) >= 3 and len(set(below)) == 1 and below[0] in "=-" and abs(len(below) - len(text)) <= 20


def _table(lines: Lines, position: int) -> Table:
    rows = [(position, _cells(lines[position][1]))]
    position += 2
    while position < len(lines) and "|" in lines[position][1] and not _FENCE.fullmatch(lines[position][1].strip()):
        rows.append((position, _cells(lines[position][1])))
        position += 1
    return Table(tuple(rows))


def _cells(line: str) -> tuple[str, ...]:
    text = line[:_MOST_LINE].strip().removeprefix("|")
    if text.endswith("|") and not text.endswith("\\|"):
        text = text[:-1]
    return tuple(plain(cell.replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", text)[:_MOST_CELLS])


def _fences(lines: Lines) -> dict[int, tuple[int, bool]]:
    """Index of a line that opens a fence → index of the last line within, and whether a line closes it."""
    marks = [
        (index, match[1], match[2].strip())
        for index, (_, line) in enumerate(lines)
        if ("```" in line or "~~~" in line) and (match := _FENCE.fullmatch(line.strip()))
    ]
    found: dict[int, tuple[int, bool]] = {}
    position = 0
    while position < len(marks):
        index, fence, _ = marks[position]
        following = marks[position + 1] if position + 1 < len(marks) else None
        if following and following[1].startswith(fence) and not following[2]:
            found[index] = (following[0] - 1, True)
            position += 2
        else:
            limit = following[0] if following else len(lines)
            found[index] = (_open_end(lines, index, limit), False)
            position += 1
    return found


def _open_end(lines: Lines, index: int, limit: int) -> int:
    """The last line of a fence that nothing closes: before the next heading, table or title after an empty line."""
    for end in range(index + 1, limit):
        if not lines[end - 1][1].strip() and _STRUCTURE.match(lines[end][1]):
            return end - 1
    return limit - 1


_IMAGE = re.compile(r"!\[[^\]]{0,500}\]\([^)]{0,2000}\)")
_LINK = re.compile(r"\[([^\]]{1,500})\]\([^)]{0,2000}\)")
_TAG = re.compile(r"</?(?:[a-zA-Z][\w-]*)(?:\s[^<>]{0,1000})?/?>")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*\*|__(?=\S)|(?<=\S)__|(?<![\w*])\*(?=[^\s*])|(?<=[^\s*])\*(?![\w*])")


def plain(text: str) -> str:
    """A line without links, tags and emphasis; a line break in a cell becomes ` ; `. Of a very long line, its start."""
    text = text[:_MOST_LINE]
    if "<" in text:
        text = _TAG.sub("", _BREAK.sub(" ; ", text))
    if "](" in text:
        text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    if "*" in text or "__" in text:
        text = _EMPHASIS.sub("", text)
    return text.replace("&nbsp;", " ").replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&").strip()
