"""Splits a file into pieces: undoes what a page, a notebook or a collector of logs wrapped around it."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from servelab.recorded.readers.lines import KEYS, is_html, is_wrapped_log, texts_of_html, unwrapped, visible_lines
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
    if is_html(start):
        lines = visible_lines(texts_of_html(parts))
    else:
        lines = unwrapped(parts) if is_wrapped_log(start) else visible_lines(parts)
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
