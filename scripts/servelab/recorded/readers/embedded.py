"""Finds JSON objects within a text: in a fence, after a log's prefix, beside console blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from servelab.recorded.readers.pieces import MOST_JSON_BYTES, MOST_JSON_VALUES, MOST_PREFIX, Piece, like

_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_CONTINUES = re.compile(r'\s*(?:["\]}\[{]|-?\d|true|false|null|NaN|-?Infinity)')


class EmbeddedJson:
    """Fed the lines of a text, gives each JSON object of a result when it ends.

    `is_result` says of the keys of an object whether it is one that a reader knows. Objects of other programs are
    counted in `others`, with the line of the first. An object that ends too early is broken if its text has such keys.
    """

    def __init__(self, is_result: Callable[[frozenset[str]], bool]) -> None:
        self._is_result = is_result
        self._parts: list[str] = []
        self._first = self._depth = self._length = self._values = 0
        self._prefix = re.compile("")
        self.others: list[int] = []

    def feed(self, number: int, line: str) -> Iterator[Piece]:
        """The object that a line ends, if it does."""
        if self._parts:
            matched = self._prefix.match(line)
            content = line[matched.end() :] if matched else line
            if not content.strip():
                return
            if _CONTINUES.match(content) and not (len(self._parts) == 1 and content.lstrip()[0] not in '"}'):
                yield from self._add(number, content)
                return
            yield from self._broken("another line stands in it")
        if "{" in line and (match := _START.search(line)) and match.start() <= MOST_PREFIX:
            self._first, self._prefix = number, like(line[: match.start()])
            yield from self._add(number, line[match.start() :])

    def end(self) -> Iterator[Piece]:
        """The object that the end of the text cuts off."""
        if self._parts:
            yield from self._broken("it does not end")

    def _add(self, number: int, content: str) -> Iterator[Piece]:
        bare = _STRING.sub('""', content)
        self._depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        self._values += sum(map(bare.count, ",[{"))
        self._length += len(content)
        self._parts.append(content)
        if self._length > MOST_JSON_BYTES or self._values > MOST_JSON_VALUES:
            yield from self._broken("it is too long")
        elif self._depth <= 0 or len(self._parts) == 1:
            yield from self._ended(number)

    def _ended(self, last: int) -> Iterator[Piece]:
        """Gives the object if it is whole; waits for more of one that its first line only begins."""
        try:
            document, _ = json.JSONDecoder().raw_decode("\n".join(self._parts))
        except RecursionError:
            yield from self._broken("nested too deeply")
            return
        except ValueError as error:
            if self._depth > 0:
                return
            yield from self._broken(str(error))
            return
        first = self._first
        self._reset()
        if self._is_result(frozenset(document)):
            yield Piece("json", "", first, last, dict.fromkeys(document, first), document=document)
        else:
            self.others.append(first)

    def _broken(self, why: str) -> Iterator[Piece]:
        keys = frozenset(found[1:-1] for part in self._parts for found in _STRING.findall(part))
        first, last = self._first, self._first + len(self._parts) - 1
        self._reset()
        if self._is_result(keys):
            yield Piece("json", "", first, last, {}, broken=f"JSON is cut off or broken: {why}")
        else:
            self.others.append(first)

    def _reset(self) -> None:
        self._parts = []
        self._depth = self._length = self._values = 0
