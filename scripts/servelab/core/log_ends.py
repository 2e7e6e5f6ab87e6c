"""Reads a log of any size, with lines of any length, in bounded memory and time: its first and its last part."""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 8 << 20
"""Bytes that are read; of a longer log the first and the last half of so many."""
MOST_LINE = 8192
"""Characters of a line; the rest of a longer one is left out."""
CUT = "…"
"""Ends a line that was longer, and stands for the lines between the two halves."""


def lines_at_ends(log: Path, start: int = 0) -> list[str]:
    """The lines of a log from byte `start` on; those between its first and its last part are one line, `CUT`."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size - start
        file.seek(start)
        if size <= MOST_BYTES:
            return _lines(file.read(MOST_BYTES))
        first = _lines(file.read(MOST_BYTES // 2))
        file.seek(start + size - MOST_BYTES // 2)
        return [*first, CUT, *_lines(file.read(MOST_BYTES // 2))]


def last_text(log: Path, characters: int) -> str:
    """The last characters of a log, without space at its ends."""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BYTES))
        return file.read(MOST_BYTES).decode(errors="replace").strip()[-characters:]


def _lines(content: bytes) -> list[str]:
    lines = content.decode(errors="replace").splitlines()
    return [line if len(line) <= MOST_LINE else line[:MOST_LINE] + CUT for line in lines]
