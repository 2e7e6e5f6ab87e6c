"""Finds JSON objects within a text: in a fence, after a log's prefix, beside console blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Set
from typing import Any, cast

from servelab.recorded.readers.pieces import MOST_JSON_BYTES, MOST_JSON_VALUES, MOST_PREFIX, Piece, like

_DECODE = json.JSONDecoder().raw_decode
_START = re.compile(r'\{\s*(?:"|$)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_CONTINUES = re.compile(r'\s*(?:["\]}\[{]|-?\d|true|false|null|NaN|-?Infinity)')


class EmbeddedJson:
    """Fed the lines of a text, gives each JSON object of a result when it ends.

    `results` are the keys by which readers know theirs. Objects of other programs are counted in `others`, with the
    line of the first. An object that ends too early is broken if its text has such keys.
    """

    def __init__(self, results: Collection[frozenset[str]]) -> None:
        self._results = results
        self._one_of_each = frozenset(min(markers) for markers in results)
        self._parts: list[str] = []
        self._first = self._depth = self._length = self._values = 0
        self._lead, self._prefix = "", re.compile("")
        self.others: list[int] = []

    @property
    def is_open(self) -> bool:
        """Whether an object has begun that its line does not end."""
        return bool(self._parts)

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
            content = line[match.start() :]
            if "}" in content and (document := self._whole(content)) is not None:
                yield from self._found(document, number, number)
                return
            self._first = number
            if (lead := line[: match.start()]) != self._lead:
                self._lead, self._prefix = lead, like(lead)
            yield from self._add(number, content)

    def end(self) -> Iterator[Piece]:
        """The object that the end of the text cuts off."""
        if self._parts:
            yield from self._broken("it does not end")

    def _add(self, number: int, content: str) -> Iterator[Piece]:
        bare = _STRING.sub('""', content) if '"' in content else content
        self._depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        self._values += sum(map(bare.count, ",[{"))
        self._length += len(content)
        self._parts.append(content)
        if self._length > MOST_JSON_BYTES or self._values > MOST_JSON_VALUES:
            yield from self._broken("it is too long")
        elif self._depth <= 0:
            yield from self._ended(number)

    def _ended(self, last: int) -> Iterator[Piece]:
        try:
            document, _ = _DECODE("\n".join(self._parts))
        except (RecursionError, ValueError) as error:
            yield from self._broken("nested too deeply" if isinstance(error, RecursionError) else str(error))
            return
        first = self._first
        self._reset()
        yield from self._found(document, first, last)

    @staticmethod
    def _whole(content: str) -> dict[str, Any] | None:
        """The object that a line has as a whole, which most do."""
        try:
            return cast("dict[str, Any]", _DECODE(content)[0])
        except (RecursionError, ValueError):
            return None

    def _found(self, document: dict[str, Any], first: int, last: int) -> Iterator[Piece]:
        if self._is_result(document.keys()):
            yield Piece("json", "", first, last, dict.fromkeys(document, first), document=document)
        else:
            self.others.append(first)

    def _broken(self, why: str) -> Iterator[Piece]:
        keys = {found[1:-1] for part in self._parts for found in _STRING.findall(part)}
        first, last = self._first, self._first + len(self._parts) - 1
        self._reset()
        if self._is_result(keys):
            yield Piece("json", "", first, last, {}, broken=f"JSON is cut off or broken: {why}")
        else:
            self.others.append(first)

    def _is_result(self, keys: Set[str]) -> bool:
        return not self._one_of_each.isdisjoint(keys) and any(markers <= keys for markers in self._results)

    def _reset(self) -> None:
        self._parts = []
        self._depth = self._length = self._values = 0
