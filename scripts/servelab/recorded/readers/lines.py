"""The visible lines of a file, without what a terminal, a page, a notebook or a collector of logs wrapped around."""

from __future__ import annotations

import codecs
import html
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TextIO

from servelab.recorded.readers.pieces import MOST_JSON_BYTES, Line, Piece
from servelab.recorded.readers.tables import DECODE, of_object

_START_BYTES = 1 << 18
"""Of a file, which show what it is."""
_MOST_LINE = 1 << 20
"""Characters of a line; the rest of a longer one is not read."""
_CUT = "…"
"""Ends a line that was longer."""
_VISIBLE = re.compile(r"\S")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BAR = re.compile(r"(?<![^\S\r\n])[^\S\r\n]*\d{1,3}%\|[^|\r\n]*\|[^\S\r\n]*[^\s\[|]+[^\S\r\n]*\[[^\]|\r\n]*\]")
"""A progress bar of tqdm."""
_RANK = re.compile(r" *(\d{1,5}): ")
"""Before each line of `srun --label`."""
_LEAST_LINES = 3
"""Of a rank at a file's beginning; a listing numbers each line once."""
_KEYS = ("log", "line", "message", "msg", "MESSAGE", "textPayload", "event")
"""Under which collectors of logs (Docker, Loki, cloud providers) save the text of a line."""
_WRAPPED = re.compile(rf'\{{.*"(?:{"|".join(_KEYS)})"\s*:\s*"')


def opened(file: BinaryIO) -> tuple[TextIO, str]:
    """A file as text, and its beginning: UTF-8, or UTF-16 with a byte-order mark (from PowerShell).

    Other bytes become `�`.
    """
    start = file.peek(_START_BYTES) if isinstance(file, io.BufferedReader) else b""
    encoding = "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    text = io.TextIOWrapper(file, encoding, errors="replace", newline="")
    return text, start.decode(encoding, errors="replace")


def visible_lines(text: TextIO) -> Iterator[Line]:
    """Numbered lines without colours and progress bars; `\\r` separates lines too, which then share a number.

    Empty lines are left out, except one at the end. Of a long line only the beginning is read.
    """
    number, is_rest = 1, False
    while part := text.readline(_MOST_LINE):
        line = part.rstrip("\r\n")
        is_cut = line == part and len(part) == _MOST_LINE
        line = _ANSI.sub("", line) if "\x1b" in line else line
        line = _BAR.sub("", line) if "%|" in line else line
        if line and not is_rest:
            yield number, line + _CUT if is_cut else line
        is_rest = is_cut
        number += part.endswith("\n")
    yield number, ""


def streams(text: TextIO, start: str, is_result: Callable[[Piece], bool]) -> tuple[list[Piece], list[Iterable[Line]]]:
    """The JSON objects of a file of nothing else, and the lines of its texts, apart for each rank of a parallel job."""
    begins = start.lstrip("\ufeff \t\r\n")
    is_wrapped = _text_in(begins.partition("\n")[0]) is not None
    if begins.startswith(("{", "[")) and not is_wrapped:
        content = text.read(MOST_JSON_BYTES)
        if documents := _documents(content):
            return documents, [] if any(map(is_result, documents)) else [_texts_within(content, documents)]
        if len(content) < MOST_JSON_BYTES:
            text = io.StringIO(content, newline="")
        else:
            text.seek(0)
    if _PAGE.match(begins):
        text = io.StringIO(_without_markup(text.read(MOST_JSON_BYTES)), newline="")
    lines = _from_objects(text) if is_wrapped else visible_lines(text)
    counts = Counter(match[1] for line in start.split("\n") if (match := _RANK.match(line)))
    ranks = {rank for rank, count in counts.items() if count >= _LEAST_LINES}
    return [], list(_of_ranks(lines, ranks)) if len(ranks) > 1 else [lines]


def _of_ranks(lines: Iterable[Line], ranks: set[str]) -> Iterable[list[Line]]:
    """The lines of each rank, and those of none."""
    found: dict[str, list[Line]] = {}
    for number, line in lines:
        match = _RANK.match(line)
        rank = match[1] if match and match[1] in ranks else ""
        found.setdefault(rank, []).append((number, line[match.end() :] if match and rank else line))
    return found.values()


def _documents(text: str) -> list[Piece]:
    """JSON objects: of a whole file, of lists, of lines; none unless all of the text is JSON."""
    found: list[Piece] = []
    position = counted = 0
    line = 1
    while (match := _VISIBLE.search(text, position)) and len(text) < MOST_JSON_BYTES:
        start = match.start()
        try:
            value, position = DECODE(text, start)
        except (RecursionError, ValueError):
            return []
        line += text.count("\n", counted, start)
        counted = start
        last = line + text.count("\n", start, position)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                found.append(of_object(line, last, each))
    return found


def _texts_within(content: str, documents: list[Piece]) -> Iterator[Line]:
    """Lines of a log that documents hold in texts, as a notebook's outputs or an answer of Loki, each with its line."""
    line, position = 1, 0
    for text in (each for piece in documents for each in _texts(piece.document)):
        at = content.find(json.dumps(text[:200], ensure_ascii=False)[1:-1], position)
        if at > position:
            line, position = line + content.count("\n", position, at), at
        yield from _all_at(line, text)
    yield line + 1, ""


def _all_at(number: int, text: str) -> Iterator[Line]:
    """The visible lines of a text under one number."""
    return ((number, line) for _, line in visible_lines(io.StringIO(text, newline="")) if line)


def _texts(value: Any) -> Iterator[str]:
    """Texts in a document, in order; of an object or a pair in which a collector keeps a line only that line."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            stack += [each[key] for key in _KEYS if isinstance(each.get(key), str)][:1] or reversed(list(each.values()))
        elif isinstance(each, list):
            is_pair = len(each) == 2 and isinstance(each[0], str) and each[0].isdigit()
            stack += each[1:] if is_pair else reversed(each)


def _from_objects(text: TextIO) -> Iterator[Line]:
    """The lines that a collector of logs saved, an object for each; Docker divides a long one."""
    number, rest = 1, ""
    for number, line in enumerate(iter(lambda: text.readline(_MOST_LINE), ""), start=1):
        found = _text_in(line)
        rest += line if found is None and line.strip() else found or ""
        if rest.endswith("\n") or len(rest) > _MOST_LINE:
            yield from _all_at(number, rest)
            rest = ""
    yield from _all_at(number, rest)
    yield number + 1, ""


def _text_in(line: str) -> str | None:
    """The text in a line of a collector; None if it is none."""
    if line.rstrip()[-1:] != "}" or not _WRAPPED.match(line):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    key = next((key for key in _KEYS if isinstance(entry.get(key), str)), None)
    if key is None:
        return None
    is_whole = key != "log" or entry.get("stream") not in ("stdout", "stderr")  # Docker keeps the end of the line
    return f"{entry[key].removesuffix(chr(10))}\n" if is_whole else str(entry[key])


_PAGE = re.compile(r"<pre\b|<(?:[^`]{0,4000}?<)?(?:!doctype html|html|body)\b", re.IGNORECASE)
"""Markdown may begin with an element too."""
_HIDDEN = re.compile(
    r"<!--(?:(?!<!--).)*?-->|<(head|script|style|svg|template)\b(?:(?!<\1\b).)*?</\1\s*>", re.IGNORECASE | re.DOTALL
)
_TABLE_ROW = re.compile(
    r"(<table\b(?:(?!<t(?:able|r)\b).)*+)?<tr\b((?:(?!<tr\b|<pre\b|</tr\b).)*+)</tr\s*>", re.IGNORECASE | re.DOTALL
)
_CELL = re.compile(r"<t[dh]\b[^<>]*+>((?:(?!</?t[dh]\b).)*+)", re.IGNORECASE | re.DOTALL)
_HEADING = re.compile(r"<h([1-6])\b[^<>]*+>", re.IGNORECASE)
_NEW_LINE = re.compile(r"</?(?:div|p|br|tr|li|pre|table|ul|ol|section|h[1-6])\b[^<>]*+>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z!][^<>]*+>", re.IGNORECASE)


def _without_markup(page: str) -> str:
    """The text of a page, in which a table is one of Markdown; each line is where it was, and `\\r` begins others."""
    page = _HIDDEN.sub(lambda found: "\n" * found[0].count("\n"), page)
    page = _TABLE_ROW.sub(_markdown, page)
    page = _NEW_LINE.sub("\r", _HEADING.sub(lambda found: f"\r{'#' * int(found[1])} ", page))
    return html.unescape(_TAG.sub("", page)).replace("\xa0", " ")


def _markdown(row: re.Match[str]) -> str:
    """A row as one of Markdown; one with a single text is a line of code."""
    cells = [" ".join(_TAG.sub("", cell).split()) for cell in _CELL.findall(row[2])]
    if sum(map(bool, cells)) > 1:
        line = f"| {' | '.join(cells)} |" + (f"\r|{' --- |' * len(cells)}" if row[1] else "")
    else:
        line = "".join(cells)
    above = "\n" * (row[1] or "").count("\n")
    return f"{above}\r{line}\r" + "\n" * row[2].count("\n")
