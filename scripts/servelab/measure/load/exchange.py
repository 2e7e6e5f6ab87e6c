"""One HTTP request on its own connection: the socket, and the bytes of the answer as they arrived."""

from __future__ import annotations

import re
import socket
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from servelab.measure.load.clock import Tape
from servelab.measure.load.connections import TlsSocket

Ends = npt.NDArray[np.int64]

_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?\r?\n")
_LENGTH = re.compile(rb"\d{1,18}")
_MOST_HEAD_BYTES = 1 << 16
LAST_CHUNK = b"0\r\n\r\n"
DONE_AND_LAST_CHUNK = b"\ndata: [DONE]\n\n\r\n" + LAST_CHUNK


@dataclass(frozen=True)
class Head:
    """Status and framing of an answer."""

    status: int
    body_start: int
    """Bytes before the body, including informational answers (1xx)."""
    chunked: bool
    length: int | None
    """Length of the body; None if it is chunked or ends with the connection."""
    closes: bool = False
    """Whether the server ends the connection after the answer."""


@dataclass(frozen=True)
class Decoded:
    """A body without its framing."""

    body: bytes
    ends: Ends
    """Length of the body after each piece."""
    complete: bool
    error: str | None = None
    """Why the answer is not HTTP."""


def read_head(raw: bytes | bytearray) -> Head | None:
    """The head at the start of an answer; None while it is incomplete, `ValueError` if it is not HTTP/1.x."""
    start = 0
    while True:
        if not raw.startswith(b"HTTP/1."[: len(raw) - start], start):
            raise ValueError("the answer does not begin with HTTP/1.")
        end = raw.find(b"\r\n\r\n", start)
        if end < 0:
            if len(raw) > _MOST_HEAD_BYTES:
                raise ValueError(f"no end of the head in {len(raw)} bytes")
            return None
        status = _STATUS.match(raw, start)
        if status is None:
            raise ValueError(f"no status in {bytes(raw[start : start + 40])!r}")
        if not status[2].startswith(b"1"):
            return _head(int(status[2]), bytes(raw[status.end() : end]), end + 4, closes=status[1] == b"0")
        start = end + 4


def _head(status: int, lines: bytes, body_start: int, *, closes: bool) -> Head:
    chunked, length = False, None
    for line in lines.split(b"\r\n"):
        name, _, value = line.partition(b":")
        name, value = name.strip().lower(), value.strip()
        if name == b"transfer-encoding":
            chunked = value.lower().endswith(b"chunked")
        elif name == b"content-length":
            if not _LENGTH.fullmatch(value):
                raise ValueError(f"Content-Length is {value[:40]!r}")
            length = int(value)
        elif name == b"connection":
            closes = value.lower() == b"close"
    if chunked or status in (204, 304):
        length = None if chunked else 0
    return Head(status, body_start, chunked, length, closes)


def decode(raw: bytes, ends: Sequence[int] | Ends) -> Decoded:
    """The body of an answer; `ends[i]` is the number of raw bytes received with piece i and those before it."""
    raw_ends = np.asarray(ends, dtype=np.int64)
    try:
        head = read_head(raw)
    except ValueError as error:
        return Decoded(b"", np.zeros_like(raw_ends), False, str(error))
    if head is None:
        return Decoded(b"", np.zeros_like(raw_ends), False)
    if not head.chunked:
        body = raw[head.body_start :][: head.length]
        complete = head.length is None or len(body) == head.length
        return Decoded(body, (raw_ends - head.body_start).clip(0, len(body)), complete)
    return _plain_chunks(raw, raw_ends, head.body_start) or _parsed(raw, raw_ends)


def _plain_chunks(raw: bytes, raw_ends: Ends, start: int) -> Decoded | None:
    """A complete body whose chunks hold no CRLF, so that lines alternate between sizes and chunks; else None."""
    lines = raw[start:].split(b"\r\n")
    if len(lines) < 5 or lines[-3:] != [b"0", b"", b""]:
        return None
    sizes, chunks = lines[0:-3:2], lines[1:-3:2]
    lengths = list(map(len, chunks))
    try:
        number = {size: int(size, 16) for size in set(sizes)}
        if list(map(number.__getitem__, sizes)) != lengths or 0 in number.values():
            return None
    except ValueError:
        return None
    chunk_lengths = np.array(lengths, dtype=np.int64)
    size_lengths = np.fromiter(map(len, sizes), dtype=np.int64, count=len(sizes))
    body_ends = np.cumsum(chunk_lengths)
    body_starts = body_ends - chunk_lengths
    raw_starts = start + body_starts + np.cumsum(size_lengths + 4) - 2
    chunk = np.searchsorted(raw_starts, raw_ends, side="right") - 1
    within = np.minimum(raw_ends - raw_starts[chunk], chunk_lengths[chunk])
    return Decoded(b"".join(chunks), np.where(chunk < 0, 0, body_starts[chunk] + within), True)


def _parsed(raw: bytes, raw_ends: Ends) -> Decoded:
    """Any body, parsed piece by piece."""
    import httptools  # only uncommon answers need it

    collected = _Collector()
    parser = httptools.HttpResponseParser(collected)
    body_ends, start, error = [], 0, None
    for end in raw_ends.tolist():
        if error is None:
            try:
                parser.feed_data(raw[start:end])
            except httptools.HttpParserError as failure:
                error = str(failure)
        start = end
        body_ends.append(len(collected.body))
    return Decoded(bytes(collected.body), np.array(body_ends, dtype=np.int64), collected.complete, error)


class _Collector:
    """Callbacks of the parser."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, piece: bytes) -> None:
        self.body += piece

    def on_message_complete(self) -> None:
        self.complete = True


class EndFinder:
    """Looks for the end of an answer in its pieces, one after the other, and keeps nothing."""

    def __init__(self) -> None:
        import httptools  # only uncommon answers need it

        self.pieces = 0
        """How many of the answer's pieces it has seen; its user counts."""
        self._error = httptools.HttpParserError
        self._parser = httptools.HttpResponseParser(self)
        self._complete = self._broken = False

    def feed(self, raw: bytes) -> bool:
        """Whether the answer is complete with these bytes; never if it is broken."""
        if not (self._complete or self._broken):
            try:
                self._parser.feed_data(raw)
            except self._error:
                self._broken = True
        return self._complete

    def on_message_complete(self) -> None:
        """A callback of the parser."""
        self._complete = True


STAMP_BYTES = socket.CMSG_SPACE(16)
NO_STAMP = bytes(16)
_RECENT = 8
"""Number of last pieces searched for the end of an answer: more than `LAST_CHUNK` has bytes."""
PIECE_BYTES = 64
"""Memory that a piece takes besides its bytes, at most."""
_MOST_BYTES = 256 << 10
_MOST_BYTES_PER_TOKEN = 2 << 10
"""Engines send 200 to 600 bytes per token, their framing and `PIECE_BYTES` included."""


def most_bytes(output_tokens: int) -> int:
    """Memory that an answer of so many tokens may take; one that takes more is not what was asked for."""
    return _MOST_BYTES + _MOST_BYTES_PER_TOKEN * output_tokens


class Exchange:
    """What is sent and what has arrived. The event loop fills it; the body is parsed after the round."""

    __slots__ = (
        "address",
        "awaited",
        "complete",
        "end_finder",
        "ended_at",
        "error",
        "head",
        "index",
        "is_kept",
        "left",
        "opening",
        "places",
        "read_at",
        "receive",
        "sent_at",
        "shaking",
        "sizes",
        "sock",
        "stamps",
        "started_at",
        "tail",
        "unsent",
    )

    def __init__(self, index: int, message: bytes, started_at: float, left: int, *, is_kept: bool = False) -> None:
        self.index = index
        """Position among the plan's requests."""
        self.unsent: memoryview | None = memoryview(message)
        """Bytes left to send; None when all are sent."""
        self.address = 0
        """Index of the server's address to connect to."""
        self.sock: socket.socket | TlsSocket | None = None
        self.shaking: TlsSocket | None = None
        """The socket while its TLS handshake is not done."""
        self.receive: Callable[..., Any]
        self.is_kept = is_kept
        """Whether the connection is to be used again, so that its end cannot mark the end of the answer."""
        self.started_at = started_at
        self.sent_at: float | None = None
        self.ended_at: float | None = None
        self.error: str | None = None
        """Why the HTTP exchange failed; None for a complete answer, whatever its status."""
        self.complete = False
        """Whether the answer itself marked its end; False if the end of the connection did."""
        self.left = left
        """Bytes of memory that the rest of the answer may take; see `most_bytes`."""
        self.head: Head | None = None
        self.opening = bytearray()
        """The bytes so far while the head is incomplete."""
        self.awaited = 0
        """Bytes of a body of known length that have not arrived."""
        self.end_finder: EndFinder | None = None
        self.places = array("Q")
        """Position of each piece of the answer on the tape."""
        self.sizes = array("I")
        self.stamps = bytearray()
        """The kernel's stamp of each piece, 16 bytes each."""
        self.read_at = array("d")
        """When each piece was read."""
        self.tail = b""
        """Only a piece that ends with this, or is shorter than 5 bytes, can be the last: others are not checked."""

    def raw(self, tape: Tape) -> bytes:
        """The answer so far, with its HTTP framing."""
        return tape.join(self.places, self.sizes)

    def has_ended(self, tape: Tape) -> bool:
        """Whether the answer is complete; `ValueError` if it is not HTTP. Called when a piece may be the last.

        Without a `tail` that is each piece, so that each is looked at in constant time.
        """
        if self.head is None:
            self.opening += tape.join(self.places[-1:], self.sizes[-1:])
            self.head = read_head(self.opening)
            if self.head is None:
                return False
            self.awaited = self.head.body_start + (self.head.length or 0) - len(self.opening)
            self.opening.clear()
            if self.head.chunked:
                self.tail = LAST_CHUNK[-4:] if self.is_kept else LAST_CHUNK
        elif not self.head.chunked:
            self.awaited -= self.sizes[-1]
        if not self.head.chunked:
            return self.head.length is not None and self.awaited <= 0
        recent = tape.join(self.places[-_RECENT:], self.sizes[-_RECENT:])
        if not recent.endswith(LAST_CHUNK):
            return self.is_kept and self._is_complete(tape)  # with trailers after the last chunk
        # Events after `[DONE]` do not matter. JSON holds no line break, so this ending cannot be part of a text.
        return recent.endswith(DONE_AND_LAST_CHUNK) or self._is_complete(tape)

    def can_be_followed(self) -> bool:
        """Whether the connection of a complete answer takes a further request."""
        assert self.head is not None
        is_over = self.head.chunked or self.awaited == 0
        return self.is_kept and is_over and not self.head.closes and self.unsent is None

    def ends_by_closing(self, tape: Tape) -> bool:
        """Whether the end of the connection marks the end of the answer."""
        if self.head is None:
            return False
        if self.head.chunked:  # for example with trailers, which `tail` does not match
            return self._is_complete(tape)
        return self.head.length is None

    def _is_complete(self, tape: Tape) -> bool:
        """Whether the chunks have ended; each piece is parsed once, however often a piece looks like the last."""
        if self.end_finder is None:
            self.end_finder = EndFinder()
        done = self.end_finder.pieces
        self.end_finder.pieces = len(self.places)
        return self.end_finder.feed(tape.join(self.places[done:], self.sizes[done:]))
