"""Gives each result a text of its own that reads as this result alone: a recorded study has one result per file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

from servelab.recorded.draft.markup import Lines
from servelab.recorded.logs import figures_of
from servelab.recorded.readers import Block, scan_stream

_MOST_LINES, _MOST_SHARED = 20_000, 200
"""Lines around a result that are tried with it; results that share them."""


def own_log(block: Block, blocks: list[Block], lines: Lines, first: int, last: int) -> str | None:
    """The text of a block that stands with others in lines `first` to `last`; None if none reads as it alone.

    It is its own lines; or, of a document with a list of results, the document with one; or, of a table, the lines
    without the other results'.
    """
    figures = figures_of(block)
    for text in _texts(block, blocks, lines, first, last):
        found = list(scan_stream(block.file, io.BytesIO(text.encode("utf-8", errors="surrogateescape")), []))
        if len(found) == 1 and isinstance(found[0], Block) and figures_of(found[0]) == figures:
            return text
    return None


def _texts(block: Block, blocks: list[Block], lines: Lines, first: int, last: int) -> Iterator[str]:
    begin, end = block.first_line - 1, block.last_line - 1
    own = dedented([text for _, text in lines[begin : end + 1]])
    yield own
    same = [each for each in blocks if (each.first_line, each.last_line) == (block.first_line, block.last_line)]
    if len(same) > 1:
        yield from _documents(own, same.index(block), len(same))
    if last - first > _MOST_LINES or len(blocks) > _MOST_SHARED:
        return
    others: set[int] = set()
    for each in blocks:
        if (each.first_line, each.last_line) != (block.first_line, block.last_line):
            others.update(range(each.first_line - 1, each.last_line))
    kept = [index for index in range(first, last + 1) if index not in others or begin <= index <= end]
    yield dedented([lines[index][1] for index in kept])


def _documents(text: str, position: int, count: int) -> Iterator[str]:
    """A JSON document with one of its results, where a list in it has as many entries as it has results."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        for key, value in document.items():
            if isinstance(value, list) and len(value) == count:
                yield json.dumps({**document, key: [value[position]]}, indent=1, ensure_ascii=False)


def dedented(lines: list[str]) -> str:
    """Lines without the indent that all have."""
    least = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[least:].rstrip() for line in lines) + "\n"
