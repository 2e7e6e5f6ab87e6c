"""One HTTP request on a connection of its own: its socket, and the bytes of the answer as they came."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Callable
from typing import Any

from servelab.load.framing import Head, decode, is_complete, read_head

SO_TIMESTAMPNS = 35
"""Linux: `recvmsg` gives the time at which the kernel had what is read, as a `struct timespec`."""
STAMP_BYTES = socket.CMSG_SPACE(16)
NO_STAMP = bytes(16)


class Exchange:
    """What is sent and what has come; the event loop fills it, nothing is parsed before the round has ended."""

    __slots__ = (
        "address",
        "complete",
        "ended_at",
        "ends",
        "error",
        "head",
        "index",
        "raw",
        "read_at",
        "receive",
        "sent_at",
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
        self.raw = bytearray()
        self.ends = array("Q")
        """Length of `raw` with each piece."""
        self.stamps = bytearray()
        """The kernel's stamp of each piece, 16 bytes each."""
        self.read_at = array("d")
        """When each piece was read."""
        self.tail = b""
        """What a piece must end with to be worth a look at whether the answer has ended."""

    def has_ended(self) -> bool:
        """Whether the answer is complete; `ValueError` if it is not HTTP. Called when a piece ends with `tail`."""
        if self.head is None:
            self.head = read_head(self.raw)
            if self.head is None:
                return False
            if self.head.chunked:
                self.tail = b"0\r\n\r\n"
                if not self.raw.endswith(self.tail):
                    return False
        return is_complete(self.head, self.raw)

    def ends_by_closing(self) -> bool:
        """Whether the end of the connection is the end of the answer."""
        if self.head is None:
            return False
        if self.head.chunked:  # with trailers, say, which `tail` does not find
            return decode(bytes(self.raw), self.ends).complete
        return self.head.length is None
