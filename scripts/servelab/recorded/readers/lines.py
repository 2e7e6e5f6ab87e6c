"""Reads a log of any size in bounded memory: line by line, as a terminal shows them.

A log may come from anyone. So each pattern here and in `servelab.recorded.readers.pieces` needs time in proportion to
the line, also for a line that was made to be slow, and a line has a limit.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

MOST_LINE = 1 << 20
"""Characters of a line; what is beyond is not read."""
CUT = "…"
"""Ends a line that was longer."""
_BLOCK_BYTES = 1 << 18
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
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
