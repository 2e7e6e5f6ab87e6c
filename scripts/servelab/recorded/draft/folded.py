"""Undoes what copying does to Markdown: rows of tables over several lines, tables and pictures within other lines."""

from __future__ import annotations

import re

from servelab.recorded.draft.markup import Lines

_WITHIN = re.compile(r"\|(?:\s*:?-{3,}:?\s*\|)+")
_HEADING = re.compile(r"(#{1,6}\s+[^|!]{1,200}?)\s+(!\[.*|\|.*\|)$")
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})")
_MOST_LINE = 20_000
_MOST_ROW = 12
"""Lines of one row."""


def unfolded(lines: Lines) -> Lines:
    """Lines, each of them one heading, one row of a table, or text."""
    found: Lines = []
    in_fence = False
    position = 0
    while position < len(lines):
        number, line = lines[position]
        position += 1
        if _FENCE.match(line):
            in_fence = not in_fence
        if in_fence or len(line) > _MOST_LINE or ("|" not in line and "![" not in line):
            found.append((number, line))
            continue
        if heading := _HEADING.fullmatch(line.strip()):
            found += [(number, heading[1]), (number, "")]
            line = heading[2]
        for part in _rows(line):
            found.append((number, part))
        row, end = _continued(found[-1][1], lines, position)
        if end > position and "|" in line:
            found[-1] = (number, row)
            position = end
    return found


def _rows(line: str) -> list[str]:
    """The rows of a table that stands within one line; the line itself if none does."""
    text = line.strip()
    within = _WITHIN.search(text)
    if within is None or within[0] == text:
        return [line]
    cells = within[0].count("|") - 1
    bars = [match.start() for match in re.finditer(r"\|", text[: within.start()])]
    if len(bars) < cells + 1:
        return [line]
    begin = bars[-cells - 1]
    before, after = text[:begin].strip(), text[within.end() :].strip()
    rows = [text[begin : within.start()].strip(), within[0]]
    return [*([before, ""] if before else []), *rows, *([after] if after else [])]


def _continued(row: str, lines: Lines, position: int) -> tuple[str, int]:
    """A row with the lines that it goes on in, up to the one that ends with a bar; and the line after it."""
    text = row.strip()
    if not text.startswith("|") or text.endswith("|"):
        return row, position
    parts = [text]
    for end in range(position, min(len(lines), position + _MOST_ROW)):
        following = lines[end][1].strip()
        if not following or following.startswith(("|", "#", "```", "~~~")):
            break
        parts.append(following)
        if following.endswith("|"):
            return " <br> ".join(parts), end + 1
    return row, position
