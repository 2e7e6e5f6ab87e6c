"""Finds JSON objects within a text: in a fence, after a log's prefix, beside console blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Set
from typing import Any, cast

from servelab.recorded.readers.pieces import MOST_JSON_BYTES, MOST_PREFIX, Lines, Piece, Prefix

_DECODE = json.JSONDecoder().raw_decode
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)("?)')
"""A text, and what ends it. One without an end is matched too, so that no character is looked at twice."""
_CONTINUES = re.compile(r'\s*(?:["\]}\[{]|-?\d|true|false|null|NaN|-?Infinity)')


class EmbeddedJson:
    """Fed the lines of a text, gives each JSON object of a result when it ends.

    `results` are the keys by which readers know theirs. Objects of other programs are counted in `others`, with the
    line of the first. An object that ends too early is broken if its text has such keys.
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
            if len(self._parts) == 1 and not self._length:
                self._count(self._parts[0])
            return self._add(number, content)
        return (*self._broken("another line stands in it"), *self._begun(number, line))

    def end(self) -> Iterable[Piece]:
        """The object that the end of the text cuts off."""
        return self._broken("it does not end") if self._parts else ()

    def _begun(self, number: int, line: str) -> Iterable[Piece]:
        match = _START.search(line)
        if match is None or match.start() > MOST_PREFIX:
            return ()
        content = line[match.start() :]
        if "}" in content and (document := self._whole(content)) is not None:
            return self._found(document, number, number)
        self._first = number
        self._prefix = Prefix(line[: match.start()])
        if "}" in content:
            return self._add(number, content)
        self._parts.append(content)  # counted when another line continues it
        return ()

    def _add(self, number: int, content: str) -> Iterable[Piece]:
        self._parts.append(content)
        self._count(content)
        if self._length > MOST_JSON_BYTES:
            return self._broken("it is too long")
        return self._ended(number) if self._depth <= 0 else ()

    def _count(self, content: str) -> None:
        bare = _STRING.sub(_emptied, content)
        opened = bare.count("{") + bare.count("[")
        self._depth += opened - bare.count("}") - bare.count("]")
        self._length += len(content)

    def _ended(self, last: int) -> Iterable[Piece]:
        try:
            document, _ = _DECODE("\n".join(self._parts))
        except (RecursionError, ValueError) as error:
            return self._broken("nested too deeply" if isinstance(error, RecursionError) else str(error))
        first = self._first
        self._reset()
        return self._found(document, first, last)

    @staticmethod
    def _whole(content: str) -> dict[str, Any] | None:
        """The object that a line has as a whole, which most do."""
        try:
            return cast("dict[str, Any]", _DECODE(content)[0])
        except (RecursionError, ValueError):
            return None

    def _found(self, document: dict[str, Any], first: int, last: int) -> Iterable[Piece]:
        if self._is_result(document.keys()):
            return (Piece("json", "", first, last, dict.fromkeys(document, first), document=document),)
        self.others.append(first)
        return ()

    def _broken(self, why: str) -> Iterable[Piece]:
        keys = {text for part in self._parts for text, end in _STRING.findall(part) if end}
        first, last = self._first, self._first + len(self._parts) - 1
        self._reset()
        if self._is_result(keys):
            return (Piece("json", "", first, last, {}, broken=f"JSON is cut off or broken: {why}"),)
        self.others.append(first)
        return ()

    def _is_result(self, keys: Set[str]) -> bool:
        return any(markers <= keys for markers in self._results)

    def _reset(self) -> None:
        self._parts = []
        self._depth = self._length = 0


def _emptied(text: re.Match[str]) -> str:
    """A text whose brackets do not count. Those behind a quotation mark without a second one do."""
    return '""' if text[2] else text[0]
