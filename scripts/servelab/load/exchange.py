"""One HTTP request on a connection of its own: its socket, and the bytes of the answer as they came."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Callable
from typing import Any

from servelab.load.framing import DONE_AND_LAST_CHUNK, LAST_CHUNK, Head, decode, read_head
from servelab.load.tape import Tape

SO_TIMESTAMPNS = 35
"""Linux: `recvmsg` gives the time at which the kernel had what is read, as a `struct timespec`."""
STAMP_BYTES = socket.CMSG_SPACE(16)
NO_STAMP = bytes(16)
_RECENT = 8
"""Pieces that the end of an answer is looked for in: more than `LAST_CHUNK` has bytes."""


class Exchange:
    """What is sent and what has come; the event loop fills it, nothing is parsed before the round has ended."""

    __slots__ = (
        "address",
        "complete",
        "ended_at",
        "error",
        "head",
        "index",
        "places",
        "read_at",
        "receive",
        "sent_at",
        "sizes",
        "sock",
        "stamps",
        "started_at",
        "tail",
        "unsent",
    )

    def __init__(self, index: int, message: bytes, started_at: float) -> None:
        self.index = index
        """Position among the plan's requests."""
        self.unsent: memoryview | None = memoryview(message)
        """What is left to send; None once nothing is."""
        self.address = 0
        """Which of the server's addresses is tried."""
        self.sock: socket.socket | None = None
        self.receive: Callable[..., Any]
        self.started_at = started_at
        self.sent_at: float | None = None
        self.ended_at: float | None = None
        self.error: str | None = None
        """Why the exchange failed as HTTP; None for an answer of any status that came to its end."""
        self.complete = False
        """The answer's end was seen in the answer, not in the connection."""
        self.head: Head | None = None
        self.places = array("Q")
        """Where each piece of the answer lies on the tape."""
        self.sizes = array("I")
        self.stamps = bytearray()
        """The kernel's stamp of each piece, 16 bytes each."""
        self.read_at = array("d")
        """When each piece was read."""
        self.tail = b""
        """What a piece must end with to be worth a look at whether the answer has ended; or it is shorter than that."""

    def raw(self, tape: Tape) -> bytes:
        """The answer so far, HTTP framing included."""
        return tape.join(self.places, self.sizes)

    def has_ended(self, tape: Tape) -> bool:
        """Whether the answer is complete; `ValueError` if it is not HTTP. Called when a piece may be the last."""
        if self.head is None:
            self.head = read_head(self.raw(tape))
            if self.head is None:
                return False
            if self.head.chunked:
                self.tail = LAST_CHUNK
        if not self.head.chunked:
            return self.head.length is not None and sum(self.sizes) >= self.head.body_start + self.head.length
        recent = tape.join(self.places[-_RECENT:], self.sizes[-_RECENT:])
        if not recent.endswith(LAST_CHUNK):
            return False
        # No event after `[DONE]` is of interest, so this needs no look at what came before: JSON holds no line break.
        return recent.endswith(DONE_AND_LAST_CHUNK) or self._is_complete(tape)

    def ends_by_closing(self, tape: Tape) -> bool:
        """Whether the end of the connection is the end of the answer."""
        if self.head is None:
            return False
        if self.head.chunked:  # with trailers, say, which `tail` does not find
            return self._is_complete(tape)
        return self.head.length is None

    def _is_complete(self, tape: Tape) -> bool:
        return decode(self.raw(tape), [sum(self.sizes)]).complete
