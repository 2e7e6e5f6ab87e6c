"""Splits a file into pieces: undoes what a page, a notebook or a collector of logs wrapped around it."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import chain
from typing import Any, BinaryIO

from servelab.recorded.readers.pieces import MOST_JSON_BYTES, Finder, Lines, Piece

_VISIBLE = re.compile(r"\S")
_DECODE = json.JSONDecoder().raw_decode
_RANK = re.compile(r" *(\d{1,5}): ")
"""Before each line of `srun --label`."""
_LEAST_LINES = 3
"""Of a rank at a file's beginning; a listing numbers each line once."""


def split(
    file: str, texts: Iterator[str], finders: Callable[[], list[Finder]], results: Collection[frozenset[str]]
) -> Iterator[Piece]:
    """The pieces of a file, in order. `texts` are its consecutive parts, `finders` makes those of the layouts that a
    text may have, `results` are the keys by which readers know their JSON objects."""
    first = next(texts, "")
    start = first.lstrip("\ufeff \t\r\n")
    parts = chain([first], texts)
    if start.startswith(("{", "[")) and not is_wrapped_log(start):
        content = _beginning(parts)
        documents = _documents(file, content)
        if any(names <= piece.lines.keys() for piece in documents for names in results):
            yield from documents
            return
        if documents:
            wrapped = [*_found(file, _texts_within(content, documents), finders, set())]
            yield from wrapped or documents
            return
        parts = chain((content[at : at + (1 << 18)] for at in range(0, len(content), 1 << 18)), parts)
    if _HTML.match(start):
        lines = visible_lines(texts_of_html(parts))
    else:
        lines = _visible(_from_objects(parts)) if is_wrapped_log(start) else visible_lines(parts)
    yield from _found(file, lines, finders, _ranks(first))


def _found(
    file: str, lines: Iterator[tuple[int, str]], finders: Callable[[], list[Finder]], ranks: set[str]
) -> Iterator[Piece]:
    """The pieces of a text; the lines of each rank of a parallel job are a text of their own."""
    streams: dict[str, tuple[list[Finder], Lines]] = {}
    for number, line in lines:
        rank = match[1] if ranks and (match := _RANK.match(line)) and match[1] in ranks else ""
        content = line[match.end() :] if rank and match else line
        if rank not in streams:
            streams[rank] = (finders(), deque(maxlen=2))
        own, before = streams[rank]
        for finder in own:
            for piece in finder.feed(number, content, before):
                yield replace(piece, file=file)
        if content and not content.isspace():
            before.append((number, content))
    for own, _ in streams.values():
        for finder in own:
            for piece in finder.end():
                yield replace(piece, file=file)


def _ranks(start: str) -> set[str]:
    """The ranks that label lines of a file's beginning; none unless there are two."""
    counts = Counter(match[1] for line in start.split("\n") if (match := _RANK.match(line)))
    found = {rank for rank, count in counts.items() if count >= _LEAST_LINES}
    return found if len(found) > 1 else set()


def _beginning(texts: Iterator[str]) -> str:
    parts, length = [], 0
    for text in texts:
        parts.append(text)
        length += len(text)
        if length > MOST_JSON_BYTES:
            break
    return "".join(parts)


def _documents(file: str, text: str) -> list[Piece]:
    """JSON objects: of a whole file, of lists, of lines; none unless all of the text is JSON."""
    found: list[Piece] = []
    position = counted = 0
    line = 1
    while (match := _VISIBLE.search(text, position)) and len(text) <= MOST_JSON_BYTES:
        start = match.start()
        try:
            value, position = _DECODE(text, start)
        except (RecursionError, ValueError):
            return []
        line += text.count("\n", counted, start)
        counted = start
        last = line + text.count("\n", start, position)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                keys = dict.fromkeys(each, line)
                keys |= {name: line for inner in each.values() if isinstance(inner, dict) for name in inner}
                found.append(Piece("json", file, line, last, keys, document=each))
    return found


def _texts_within(content: str, documents: list[Piece]) -> Iterator[tuple[int, str]]:
    """Lines of a log that documents hold in texts, as a notebook's outputs or an answer of Loki, each with its line."""
    line, position = 1, 0
    for text in (each for piece in documents for each in _texts(piece.document)):
        at = content.find(json.dumps(text[:200], ensure_ascii=False)[1:-1], position)
        if at > position:
            line, position = line + content.count("\n", position, at), at
        yield from ((line, each) for _, each in visible_lines([text.removesuffix("\n")]))


def _texts(value: Any) -> Iterator[str]:
    """Texts in a document, in order; of an object or a pair in which a collector keeps a line only that line."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            stack += [each[key] for key in KEYS if isinstance(each.get(key), str)][:1] or reversed(list(each.values()))
        elif isinstance(each, list):
            is_pair = len(each) == 2 and isinstance(each[0], str) and each[0].isdigit()
            stack += each[1:] if is_pair else reversed(each)


MOST_LINE = 1 << 20
"""Characters of a line; the rest of a longer one is not read."""
CUT = "…"
"""Ends a line that was longer."""
_BLOCK_BYTES = 1 << 18
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_WRAPPED = re.compile(r'\{.*"(?:log|line|message|msg|textPayload)"\s*:\s*"')
KEYS = ("log", "line", "message", "msg", "textPayload")
"""Under which collectors of logs (Docker, Loki, cloud providers) save the text of a line."""
_HTML = re.compile(r"<pre\b|<(?:[^`]{0,4000}?<)?(?:!doctype html|html|body)\b", re.IGNORECASE)
"""A page; Markdown may begin with an element too."""
_NO_TEXT = frozenset({"script", "style", "head", "svg", "template"})
_LINES = frozenset(
    {"div", "p", "br", "tr", "li", "pre", "table", "ul", "ol", "section", "h1", "h2", "h3", "h4", "h5", "h6"}
)
"""Elements that begin and end a line."""
_BAR = re.compile(r"(?<![^\S\r\n])[^\S\r\n]*\d{1,3}%\|[^|\r\n]*\|[^\S\r\n]*[^\s\[|]+[^\S\r\n]*\[[^\]|\r\n]*\]")
"""A progress bar of tqdm."""


def decoded(file: BinaryIO) -> Iterator[str]:
    """The text of a file in UTF-8, or in UTF-16 with a byte-order mark (from PowerShell); other bytes become `�`."""
    block = file.read(_BLOCK_BYTES)
    wide = block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8-sig")(errors="replace")
    while block:
        yield decoder.decode(block)
        block = file.read(_BLOCK_BYTES)
    yield decoder.decode(b"", final=True)


def visible_lines(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Numbered lines without colours and progress bars; `\\r` separates lines too, which then share a number.

    Empty lines are left out, except the last. A longer line than `MOST_LINE` ends with `CUT`.
    """
    return _visible(_numbered(texts))


def is_wrapped_log(start: str) -> bool:
    """Whether a text begins as a collector of logs writes: an object per line, with the text of a line."""
    return _text_of(start.partition("\n")[0]) is not None


def texts_of_html(texts: Iterable[str]) -> Iterator[str]:
    """The text of a page, in which a table is one of Markdown; each line is where it was."""
    page = _Page()
    for text in texts:
        page.feed(text)
        yield page.taken()
    page.close()
    yield page.taken()


class _Page(HTMLParser):
    """The visible text of a page. Line breaks of the source are kept, so that lines keep their numbers; an element that
    begins a line does so by `\\r`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._row: list[str] = []
        self._hidden = self._code = self._breaks = 0
        self._is_head = False

    def taken(self) -> str:
        """What has come since the last call."""
        found, self._parts = "".join(self._parts), []
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A line, a cell, or nothing that shows."""
        self._hidden = 0 if tag == "body" else self._hidden + (tag in _NO_TEXT)
        self._code += tag == "pre"
        self._is_head |= tag == "table"
        if tag in ("td", "th"):
            self._row.append("")
        elif tag in _LINES:
            self._parts.append(f"\r{'#' * int(tag[1])} " if re.fullmatch("h[1-6]", tag) else "\r")

    def handle_endtag(self, tag: str) -> None:
        """The end of a line, or of a table's row; a row with a single text is a line of code."""
        self._hidden = max(0, self._hidden - (tag in _NO_TEXT))
        self._code = max(0, self._code - (tag == "pre"))
        if tag == "tr":
            cells = [cell for cell in self._row if cell]
            self._parts.append(f"| {' | '.join(self._row)} |" if len(cells) > 1 else "".join(cells))
            self._parts.append(f"\r|{' --- |' * len(self._row)}" if self._is_head and len(cells) > 1 else "")
            self._parts.append("\r" + "\n" * self._breaks)
            self._row, self._breaks, self._is_head = [], 0, False
        elif tag in _LINES:
            self._parts.append("\r")

    def handle_data(self, data: str) -> None:
        """A text; within a row of a table, in one line."""
        if self._hidden:
            self._parts.append("\n" * data.count("\n"))
        elif self._row and not self._code:
            self._row[-1] += " ".join(data.split())
            self._breaks += data.count("\n")
        else:
            self._parts.append(data)


def _visible(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    last = (1, "")
    for number, line in lines:
        if last[1]:
            yield last
        part = line.removesuffix("\r")
        if "\x1b" in part:
            part = _ANSI.sub("", part)
        if "%|" in part:
            part = _BAR.sub("", part)
        if "\r" in part:
            *drawn, part = part.split("\r")
            yield from ((number, each) for each in drawn if each)
        last = (number, part)
    yield last


def _from_objects(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    number, rest = 1, ""
    for number, line in _numbered(texts):
        text = _text_of(line)
        if text is None:
            if not line or line.isspace():
                continue
            text = f"{line}\n"
        rest = (rest + text)[: MOST_LINE + 1]
        if rest.endswith("\n") or len(rest) > MOST_LINE:
            yield from ((number, each) for each in rest.rstrip("\n").split("\n"))
            rest = ""
    yield from ((number, each) for each in rest.split("\n"))


def _text_of(line: str) -> str | None:
    """The text in a line of a collector; None if it is none."""
    if line.rstrip()[-1:] != "}" or not _WRAPPED.match(line):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    key = next((key for key in KEYS if isinstance(entry.get(key), str)), None)
    if key is None:
        return None
    is_whole = key != "log" or entry.get("stream") not in ("stdout", "stderr")  # Docker keeps the end of the line
    return f"{entry[key].removesuffix(chr(10))}\n" if is_whole else str(entry[key])


def _numbered(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    number, rest, dropping = 1, "", False
    for text in texts:
        first, *others = text.split("\n")
        rest += "" if dropping else first
        for line in others:
            yield number, rest
            number, rest, dropping = number + 1, line, False
        if len(rest) > MOST_LINE and "\r" in rest:  # a progress bar that was drawn thousands of times
            shown, _, rest = rest.rpartition("\r")
            yield number, shown
        if len(rest) > MOST_LINE:
            rest, dropping = rest[:MOST_LINE] + CUT, True
    yield number, rest
