"""One HTTP request on its own connection: the socket, and the body of the answer with the times of its pieces."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Callable
from typing import Any

import httptools

from servelab.measure.load.connections import TlsSocket

STAMP_BYTES = socket.CMSG_SPACE(16)
NO_STAMP = bytes(16)
PIECE_BYTES = 64
"""Memory that a piece takes besides its bytes, at most."""
_MOST_BYTES = 256 << 10
_MOST_BYTES_PER_TOKEN = 2 << 10
"""Engines send 200 to 600 bytes per token, their framing and `PIECE_BYTES` included."""
_FRAMING = (b"content-length", b"transfer-encoding")


def most_bytes(output_tokens: int) -> int:
    """Most memory that an answer of so many tokens may take; a longer one is not what was asked for."""
    return _MOST_BYTES + _MOST_BYTES_PER_TOKEN * output_tokens


class Exchange:
    """What is sent and what has arrived. The event loop fills it; the body is read after the round."""

    def __init__(self, index: int, message: bytes, started_at: float, left: int) -> None:
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
        self.started_at = started_at
        self.sent_at: float | None = None
        self.ended_at: float | None = None
        self.error: str | None = None
        """Why the HTTP exchange failed; None for a complete answer, whatever its status."""
        self.left = left
        """Bytes of memory that the rest of the answer may take; see `most_bytes`."""
        self.status: int | None = None
        self.complete = False
        """Whether the answer itself marked its end; False if the end of the connection did."""
        self.can_be_followed = False
        """Whether the server keeps the connection of a complete answer open."""
        self.body = bytearray()
        """The answer so far, without its HTTP framing."""
        self.ends = array("Q")
        """Length of the body after each piece."""
        self.stamps = bytearray()
        """The kernel's stamp of each piece, 16 bytes each."""
        self.read_at = array("d")
        """When each piece was read."""
        self._is_framed = False
        self._parser: Any = httptools.HttpResponseParser(self)

    def take(self, piece: memoryview) -> bool:
        """Adds a piece of the answer; whether the answer is complete with it. `ValueError` if it is not HTTP."""
        try:
            self._parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:  # what follows a complete answer does not matter
                raise ValueError(str(error) or "an upgrade") from None
        finally:
            self.ends.append(len(self.body))
        return self.complete

    @property
    def ends_by_closing(self) -> bool:
        """Whether the end of the connection marks the end of the answer."""
        return self.status is not None and not self._is_framed

    def close_parser(self) -> None:
        """Releases the parser: nothing more is taken."""
        self._parser = None

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Called by the parser."""
        self._is_framed = self._is_framed or name.lower() in _FRAMING

    def on_headers_complete(self) -> None:
        """Called by the parser; informational answers (1xx) come before the answer."""
        if (status := self._parser.get_status_code()) >= 200:
            self.status = status

    def on_body(self, part: bytes) -> None:
        """Called by the parser."""
        if not self.complete:
            self.body += part

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self.status is not None and not self.complete:
            self.complete, self.can_be_followed = True, self._parser.should_keep_alive()
