"""Cuts a file into pieces: console blocks, JSON documents, tables. Knows layouts, not tools."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEADER = re.compile(r"={12} Serving Benchmark Result ={12}(?=\s|$)")
TITLE = "Serving Benchmark Result"
_HALF_HEADER = re.compile(rf"={{3,}}\s*{TITLE}|{TITLE}\s*={{3,}}")
FOOTER = re.compile(r"={50}")
SECTION = re.compile(r"-{2,} ?[^-=].*?[^-=] ?-{2,}|={2,}![A-Z ]+!={2,}")
"""Title of a section, or TensorRT-LLM's warning of failed requests."""
_ROW = re.compile(r"(?P<label>[^:\s][^:]*):(?:\s+(?P<text>\S.*?))?\s*$")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BAR = re.compile(r"\s*\d{1,3}%\|[^|]*\|\s*\S+\s*\[[^\]]*\]")
"""A progress bar of tqdm."""


@dataclass(frozen=True)
class Row:
    """A line of a console block, `label: text`; `text` is empty for a heading, `label` for anything else."""

    line: int
    label: str
    text: str
    raw: str


@dataclass(frozen=True)
class Piece:
    """A part of a file that one tool wrote."""

    form: str
    file: str
    first_line: int
    last_line: int
    lines: dict[str, int]
    """Name (label, key, metric of a row) → line of its first place."""
    rows: list[Row] = field(default_factory=list)
    """Lines of a console block, between header and footer."""
    document: dict[str, Any] = field(default_factory=dict)
    """A JSON document."""
    table: list[list[str]] = field(default_factory=list)
    """Rows of a CSV file."""
    broken: str | None = None
    """Why it cannot be read, whatever the tool."""

    @property
    def names(self) -> frozenset[str]:
        """Names of its lines."""
        return frozenset(self.lines)


def read_text(path: Path) -> str:
    """A file's text, UTF-8 or (as PowerShell redirects) UTF-16 with its mark; bytes that are neither become `�`."""
    data = path.read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def split(path: Path, text: str, is_known: Callable[[str], bool]) -> Iterator[Piece]:
    """The pieces of a file, in order.

    `is_known` tells a label of some tool's console block from any other: the end of a block whose header is lost is an
    error, a line of 50 `=` in another program's log is nothing.
    """
    start = text.lstrip()
    if start.startswith(("{", "[")) and not HEADER.search(text):
        yield from _documents(str(path), text)
    elif start.startswith("Metric,"):
        table = list(csv.reader(text.splitlines()))
        lines = {row[0]: number for number, row in reversed(list(enumerate(table, 1))) if row}
        broken = None if text.endswith("\n") else "the table's last line is cut off"
        yield Piece("csv", str(path), 1, len(table), lines, table=table, broken=broken)
    else:
        yield from _console_blocks(str(path), text, is_known)


def _documents(file: str, text: str) -> Iterator[Piece]:
    """JSON documents, one after the other: a whole file, JSON lines, or an appended result."""
    decoder = json.JSONDecoder()
    position = 0
    while match := re.compile(r"\S").search(text, position):
        first = text.count("\n", 0, match.start()) + 1
        try:
            document, position = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            yield Piece("json", file, error.lineno, error.lineno, {}, broken=f"JSON is cut off or broken: {error.msg}")
            return
        last = text.count("\n", 0, position) + 1
        for each in document if isinstance(document, list) else [document]:
            if isinstance(each, dict):
                yield Piece("json", file, first, last, dict.fromkeys(each, first), document=each)
            else:
                yield Piece("json", file, first, last, {}, broken="a JSON value that is not an object")


def _console_blocks(file: str, text: str, is_known: Callable[[str], bool]) -> Iterator[Piece]:
    first = number = 0
    prefix = re.compile("")
    rows: list[Row] = []
    before = ""
    for number, line in _visible_lines(text):
        header = HEADER.search(line)
        if header and not line[header.end() :].strip():
            if first:
                yield _block(file, first, number - 1, rows, f"the block is cut off: line {number} begins another")
            first, rows = number, []
            prefix = _like(line[: header.start()])
        elif header or _HALF_HEADER.search(line):
            fault = "line breaks are lost: it needs a line for each figure" if header else "header is cut off"
            yield Piece("console", file, number, number, {}, broken=f"the block's {fault}")
            first = 0
        elif first:
            matched = prefix.match(line)
            content = (line[matched.end() :] if matched else line).strip()
            if FOOTER.fullmatch(content):
                yield _block(file, first, number, rows, None)
                first = 0
            elif content:
                rows.append(_row(number, content))
        elif (footer := FOOTER.search(line)) and not line[footer.end() :].strip():
            matched = _like(line[: footer.start()]).match(before)
            if matched and is_known(_row(number, before[matched.end() :].strip()).label):
                yield Piece("console", file, number, number, {}, broken="the end of a block whose header is missing")
        before = line if line.strip() else before
    if first:
        yield _block(file, first, number, rows, "the block is cut off: its last line of 50 `=` is missing")


def _block(file: str, first: int, last: int, rows: list[Row], broken: str | None) -> Piece:
    lines: dict[str, int] = {}
    for row in rows:
        if row.label:
            lines.setdefault(row.label, row.line)
    return Piece("console", file, first, max([last, *(row.line for row in rows)]), lines, rows=rows, broken=broken)


def _row(number: int, content: str) -> Row:
    match = _ROW.fullmatch(content)
    if match is None or SECTION.fullmatch(content):
        return Row(number, "", "", content)
    label, text = match["label"].strip(), match["text"] or ""
    return Row(number, f"{label} (%)" if text.endswith("%") else label, text, content)


def _visible_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines as a terminal would show them, numbered from 1: no colours, no progress bars, each redrawn part its own."""
    for number, line in enumerate(text.split("\n"), start=1):
        for part in _ANSI.sub("", line).split("\r"):
            yield number, _BAR.sub("", part)


def _like(prefix: str) -> re.Pattern[str]:
    """Matches what a logger puts before each line, given what it put before the first: digits may differ."""
    parts = re.split(r"(\d+|\s+)", prefix)
    patterns = (r"\d+" if part.isdigit() else r"\s*" if part.isspace() else re.escape(part) for part in parts)
    return re.compile("".join(patterns))
