"""One HTTP request on its own connection: the socket, and the bytes of the answer as they arrived."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Callable
from typing import Any

from servelab.measure.load.connections import TlsSocket
from servelab.measure.load.framing import DONE_AND_LAST_CHUNK, LAST_CHUNK, EndFinder, Head, read_head
from servelab.measure.load.tape import Tape

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
