"""Reads a log of any size in bounded memory: line by line, as a terminal shows them."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

MOST_LINE = 1 << 20
"""Characters of a line; the rest of a longer one is not read."""
CUT = "…"
"""Ends a line that was longer."""
_BLOCK_BYTES = 1 << 18
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_DOCKER = re.compile(r'\{"(?:log|stream|time|attrs)":')
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


def unwrapped(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The same for Docker's log of a container: the lines that the container printed."""
    return _visible(_from_docker(texts))


def is_docker_log(start: str) -> bool:
    """Whether a text begins as Docker's `json-file` driver writes logs: an object per line with `log` and `stream`."""
    return _docker_text(start.partition("\n")[0]) is not None


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


def _from_docker(texts: Iterable[str]) -> Iterator[tuple[int, str]]:
    number, rest = 1, ""
    for number, line in _numbered(texts):
        text = _docker_text(line)
        if text is None:
            if not line or line.isspace():
                continue
            text = f"{line}\n"
        rest = (rest + text)[: MOST_LINE + 1]
        if rest.endswith("\n") or len(rest) > MOST_LINE:
            yield from ((number, each) for each in rest.rstrip("\n").split("\n"))
            rest = ""
    yield from ((number, each) for each in rest.split("\n"))


def _docker_text(line: str) -> str | None:
    if line.rstrip()[-1:] != "}" or not _DOCKER.match(line):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    text = entry.get("log")
    return text if isinstance(text, str) and entry.get("stream") in ("stdout", "stderr") else None


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
