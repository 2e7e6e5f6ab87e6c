"""Finds JSON objects within a text: in a fence, after a log's prefix, beside console blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Set
from typing import Any

from servelab.recorded.readers.pieces import MOST_JSON_BYTES, MOST_PREFIX, Lines, Piece, Prefix

_DECODE = json.JSONDecoder().raw_decode
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)("?)')
"""A text, and what ends it. One without an end is matched too, so that no character is looked at twice."""
_CONTINUES = re.compile(r'\s*(?:["\]}\[{]|-?\d|true|false|null|NaN|-?Infinity)')


class EmbeddedJson:
    """Fed the lines of a text, gives each JSON object of a result when it ends.

    `results` are the keys by which readers know theirs. Objects of other programs are counted in `others`, by line.
    An object that ends too early is broken if its text has such keys.
    """

    def __init__(self, results: Collection[frozenset[str]]) -> None:
        self._results = results
        self._parts: list[str] = []
        self._first = self._depth = self._length = 0
        self._prefix = Prefix("")
        self.others: list[int] = []

    def feed(self, number: int, line: str, before: Lines) -> Iterable[Piece]:
        """The object that a line ends, if it does."""
        if not self._parts:
            return self._begun(number, line) if "{" in line else ()
        content = self._prefix.rest(line)
        bare = content.lstrip()
        if not bare:
            return ()
        if _CONTINUES.match(bare) and (len(self._parts) > 1 or bare[0] in '"}'):
            return self._add(number, content)
        return (*self._broken("another line stands in it"), *self._begun(number, line))

    def end(self) -> Iterable[Piece]:
        """The object that the end of the text cuts off."""
        return self._broken("it does not end") if self._parts else ()

    def _begun(self, number: int, line: str) -> Iterable[Piece]:
        match = _START.search(line)
        if match is None or match.start() > MOST_PREFIX:
            return ()
        self._first, self._depth, self._length = number, 0, 0
        self._prefix = Prefix(line[: match.start()])
        content = line[match.start() :]
        if "}" in content:
            try:
                return self._found(_DECODE(content)[0], number)
            except (RecursionError, ValueError):
                pass
        return self._add(number, content)

    def _add(self, number: int, content: str) -> Iterable[Piece]:
        self._parts.append(content)
        self._length += len(content)
        if self._length > MOST_JSON_BYTES:
            return self._broken("it is too long")
        bare = _STRING.sub(lambda text: '""' if text[2] else text[0], content)
        self._depth += sum(map(bare.count, "{[")) - sum(map(bare.count, "}]"))
        if self._depth > 0:
            return ()
        try:
            return self._found(_DECODE("\n".join(self._parts))[0], number)
        except (RecursionError, ValueError) as error:
            return self._broken("nested too deeply" if isinstance(error, RecursionError) else str(error))

    def _found(self, document: dict[str, Any], last: int) -> Iterable[Piece]:
        self._parts = []
        if self._is_result(document.keys()):
            lines = dict.fromkeys(document, self._first)
            return (Piece("json", "", self._first, last, lines, document=document),)
        self.others.append(self._first)
        return ()

    def _broken(self, why: str) -> Iterable[Piece]:
        keys = {text for part in self._parts for text, end in _STRING.findall(part) if end}
        last = self._first + len(self._parts) - 1
        self._parts = []
        if self._is_result(keys):
            return (Piece("json", "", self._first, last, {}, broken=f"JSON is cut off or broken: {why}"),)
        self.others.append(self._first)
        return ()

    def _is_result(self, keys: Set[str]) -> bool:
        return any(markers <= keys for markers in self._results)
