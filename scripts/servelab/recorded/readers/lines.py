"""Reads a log of any size in bounded memory: line by line, as a terminal shows them.

A log may come from anyone. So each pattern here and in `servelab.recorded.readers.pieces` needs time in proportion to
the line, also for a line that was made to be slow, and a line has a limit.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import BinaryIO, NamedTuple

MOST_LINE = 1 << 20
"""Characters of a line; what is beyond is not read."""
CUT = "…"
"""Ends a line that was longer."""
_BLOCK_BYTES = 1 << 18
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_DOCKER = re.compile(r'\{"(?:log|stream|time|attrs)":')
_BAR = re.compile(r"(?<![^\S\r\n])[^\S\r\n]*\d{1,3}%\|[^|\r\n]*\|[^\S\r\n]*[^\s\[|]+[^\S\r\n]*\[[^\]|\r\n]*\]")
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


class Part(NamedTuple):
    """Consecutive lines of a log, as a terminal shows them. Empty lines are among them."""

    numbers: Sequence[int]
    """Of each line, from 1. The parts of a line between `\\r` have the same."""
    lines: list[str]
    text: str
    """The lines with `\\n` between them, to be searched at once."""


def visible_parts(texts: Iterable[str]) -> Iterator[Part]:
    """Lines as a terminal shows them, without colours and progress bars; `\\r` separates lines too.

    A longer line than `MOST_LINE` ends with `CUT`. Only the last part ends with the last line.
    """
    for number, lines in _lines(texts):
        yield _shown(range(number, number + len(lines)), lines)


def visible_lines(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The same line by line, with its number. Empty lines are left out, except the last."""
    last: tuple[int, str] | None = None
    for part in visible_parts(texts):
        for number, line in zip(part.numbers, part.lines, strict=True):
            if last is not None and last[1]:
                yield last
            last = (number, line)
    if last is not None:
        yield last


def is_docker_log(start: str) -> bool:
    """Whether a text begins as Docker's `json-file` driver writes logs: an object per line with `log` and `stream`."""
    first = start[: start.find("\n")] if "\n" in start else start
    return _docker_text(first) is not None


def unwrapped(texts: Iterable[str]) -> Iterator[Part]:
    """Lines as the container printed them, numbered as in Docker's log of them; a line that is none stays."""
    number, rest = 1, ""
    for first, lines in _lines(texts):
        numbers: list[int] = []
        printed: list[str] = []
        for number, line in enumerate(lines, first):
            text = _docker_text(line)
            if text is None:
                if not line or line.isspace():
                    continue
                if not rest:
                    numbers.append(number)
                    printed.append(line)
                    continue
                text = f"{line}\n"
            rest = (rest + text)[: MOST_LINE + 1] if rest else text
            if rest.endswith("\n") or len(rest) > MOST_LINE:
                whole = rest.rstrip("\n").split("\n")
                numbers += [number] * len(whole)
                printed += whole
                rest = ""
        yield _shown(numbers, printed)
    whole = rest.split("\n")
    yield _shown([number] * len(whole), whole)


def _docker_text(line: str) -> str | None:
    if not line.startswith('{"') or line.rstrip()[-1:] != "}" or not _DOCKER.match(line):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    text = entry.get("log")
    return text if isinstance(text, str) and entry.get("stream") in ("stdout", "stderr") else None


def _shown(numbers: Sequence[int], lines: list[str]) -> Part:
    text = "\n".join(lines)
    plain = text.replace("\r\n", "\n")
    if "\x1b" in plain:
        plain = _ANSI.sub("", plain)
    if "%|" in plain:
        plain = _BAR.sub("", plain)
    if plain != text:
        lines = plain.split("\n")
    if "\r" not in plain:
        return Part(numbers, lines, plain)
    counts = (line.count("\r") + 1 for line in lines)
    each = list(chain.from_iterable(map(repeat, numbers, counts)))
    plain = plain.replace("\r", "\n")
    return Part(each, plain.split("\n"), plain)


def _lines(texts: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Whole lines, and the number of the first."""
    number, rest, dropping = 1, "", False
    for text in texts:
        first, *others = text.split("\n")
        if not dropping:
            rest += first
        if others:
            following = others.pop()
            yield number, [rest, *others]
            number, rest, dropping = number + len(others) + 1, following, False
        if len(rest) > MOST_LINE:
            if "\r" in rest:  # a progress bar that was drawn thousands of times
                shown, _, rest = rest.rpartition("\r")
                yield number, [shown]
            if len(rest) > MOST_LINE:
                rest, dropping = rest[:MOST_LINE] + CUT, True
    yield number, [rest]
