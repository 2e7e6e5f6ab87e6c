"""One HTTP request on a connection of its own, and the time each piece of the answer arrived.

A plain asyncio protocol, for two reasons. It stamps a piece when the event loop takes it off the socket; a client
with a stream reader stamps it when a task is scheduled later, after every other connection that had data. And it
costs about half the CPU time a token, so that the client does not take from the server it measures.
"""

from __future__ import annotations

import asyncio
import time
from array import array

import httptools

clock = time.monotonic
"""Seconds; the clock of the asyncio event loop."""


class Connection(asyncio.Protocol):
    """Writes one request, and keeps the body of the answer with its arrival times, undecoded."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._now = 0.0
        self.ended = asyncio.Event()
        self.sent_at: float | None = None
        self.ended_at: float | None = None
        self.http_status: int | None = None
        self.error: str | None = None
        """Why the exchange failed as HTTP; None for an answer of any status that came to its end."""
        self.body = bytearray()
        self.stamps = array("d")
        """When each piece of the body arrived."""
        self.offsets = array("Q")
        """Length of the body with that piece."""

    def fail(self, error: str) -> None:
        """Gives the exchange up, whatever its state; later calls change nothing."""
        self._end(clock(), error)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, at: float, error: str | None) -> None:
        if self.ended_at is None:
            self.ended_at, self.error = at, error
            self.ended.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio: writes the request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.sent_at = clock()
        transport.write(self._message)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio: stamps first, then takes the pieces of the body out of the HTTP framing."""
        self._now = clock()
        if self.ended_at is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"broken_http: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio at the end of a connection, whoever ended it."""
        reason = str(error) if error else "the server closed the connection"
        self._end(clock(), f"closed_early: {reason}")

    def on_headers_complete(self) -> None:
        """Called by the HTTP parser."""
        self.http_status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        """Called by the HTTP parser for each piece of the body."""
        self.body += piece
        self.stamps.append(self._now)
        self.offsets.append(len(self.body))

    def on_message_complete(self) -> None:
        """Called by the HTTP parser at the end of the answer."""
        self._end(self._now, None)
        assert self._transport is not None
        self._transport.close()
