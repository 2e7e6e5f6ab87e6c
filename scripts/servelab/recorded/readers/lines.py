"""Reads a log of any size in bounded memory: line by line, as a terminal shows them.

A log may come from anyone. So each pattern here and in `servelab.recorded.readers.pieces` needs time in proportion to
the line, also for a line that was made to be slow, and a line has a limit.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

MOST_LINE = 1 << 20
"""Characters of a line; what is beyond is not read."""
CUT = "…"
"""Ends a line that was longer."""
_BLOCK_BYTES = 1 << 18
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_DOCKER = re.compile(r'\{"(?:log|stream|time|attrs)":')
_BAR = re.compile(r"(?<!\s)\s*\d{1,3}%\|[^|]*\|\s*[^\s\[|]+\s*\[[^\]|]*\]")
"""A progress bar of tqdm. No part of it can also be matched by the next part."""


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
    """Lines as a terminal shows them, numbered from 1, without colours and progress bars; `\\r` separates lines too.

    Empty lines are counted but, except the last, left out. A longer line than `MOST_LINE` ends with `CUT`.
    """
    for number, line in _lines(texts):
        yield from _shown(number, line)


def is_docker_log(start: str) -> bool:
    """Whether a text begins as Docker's `json-file` driver writes logs: an object per line with `log` and `stream`."""
    first = start[: start.find("\n")] if "\n" in start else start
    return _docker_text(first) is not None


def unwrapped(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines as the container printed them, numbered as in Docker's log of them; a line that is none stays."""
    number, rest = 1, ""
    for number, line in _lines(texts):
        text = _docker_text(line)
        if text is None:
            text = f"{line}\n" if line.strip() else ""
        rest = (rest + text)[: MOST_LINE + 1]
        if rest.endswith("\n") or len(rest) > MOST_LINE:
            yield from _shown(number, rest.rstrip("\n"))
            rest = ""
    yield from _shown(number, rest)


def _docker_text(line: str) -> str | None:
    if not _DOCKER.match(line):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    text = entry.get("log")
    return text if isinstance(text, str) and entry.get("stream") in ("stdout", "stderr") else None


def _shown(number: int, line: str) -> Iterator[tuple[int, str]]:
    parts = (_ANSI.sub("", line) if "\x1b" in line else line).split("\r")
    for place, part in enumerate(parts):
        if part or not place:
            yield number, _BAR.sub("", part) if "%|" in part else part


def _lines(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    number, rest, dropping = 1, "", False
    for text in texts:
        first, *others = text.split("\n")
        if not dropping:
            rest += first
        for following in others:
            if rest:
                yield number, rest
            number, rest, dropping = number + 1, following, False
        if len(rest) > MOST_LINE:
            if "\r" in rest:  # a progress bar that was drawn thousands of times
                shown, _, rest = rest.rpartition("\r")
                yield number, shown
            if len(rest) > MOST_LINE:
                rest, dropping = rest[:MOST_LINE] + CUT, True
    yield number, rest
