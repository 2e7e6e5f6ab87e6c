"""One HTTP request on its own connection, plain or TLS: the socket, and the answer with the kernel's stamps."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from array import array
from collections.abc import Callable
from typing import Any

import httptools

from servelab.measure.load import LoadPlan

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]

SO_TIMESTAMPNS = 35
"""Linux: `recvmsg` gives the time at which the kernel received the data, as a `struct timespec`."""
_PIECE_BYTES = 1 << 15
"""Ciphertext of one read; the caller's buffer has room for more than its plain text."""


def resolve(plan: LoadPlan) -> list[list[Address]]:
    """Each server's addresses, in the order to try them; `OSError` if a name cannot be resolved."""
    found = [socket.getaddrinfo(*address, type=socket.SOCK_STREAM) for address in plan.addresses]
    return [[(family, address) for family, _, _, _, address in each] for each in found]  # type: ignore[misc]


def open_socket(family: socket.AddressFamily) -> socket.socket:
    """A non-blocking socket that stamps what it receives; `OSError` if there is none."""
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # without stamps, the time of the read is used
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock


class TlsSocket:
    """TLS on a socket of `open_socket`, with what the event loop uses of a socket."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._sock, self._received, self._to_send = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=host)
        self._unsent = b""
        self._is_encrypted = False
        self.fileno, self.getsockopt, self.connect_ex, self.close = (
            sock.fileno,
            sock.getsockopt,
            sock.connect_ex,
            sock.close,
        )

    def handshake(self) -> int:
        """Goes on with the handshake: 0 if it is done, else the events to wait for; `OSError` if it fails."""
        while True:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            if not self._flush():
                return select.EPOLLOUT
            if is_done:
                return 0
            try:
                piece = self._sock.recv(_PIECE_BYTES)
            except BlockingIOError:
                return select.EPOLLIN
            if not piece:
                raise ConnectionError("the server closed the connection during the TLS handshake")
            self._received.write(piece)

    def send(self, message: memoryview) -> int:
        """Bytes of the message that were sent: 0 until the kernel has taken all of it. Called with the same message."""
        if not self._is_encrypted:
            self._tls.write(message)
            self._is_encrypted = True
        if not self._flush():
            return 0
        self._is_encrypted = False
        return len(message)

    def recvmsg_into(self, buffers: list[memoryview], ancillary_bytes: int) -> tuple[int, list[Any], int, Any]:
        """As of a socket, with the plain text and the stamp of the last packet that was read for it.

        The buffer must have room for `_PIECE_BYTES`: whatever one read completes is returned, so that nothing waits
        that no event announces.
        """
        piece, stamp, flags, sender = self._sock.recvmsg(_PIECE_BYTES, ancillary_bytes)
        if not piece:
            return 0, stamp, flags, sender
        self._received.write(piece)
        room, size = buffers[0], 0
        try:
            while read := self._tls.read(len(room) - size, room[size:]):
                size += int(read)  # with a buffer it is a number
            self._end()
            return size, stamp, flags, sender
        except ssl.SSLWantReadError:
            self._flush()
        if not size:  # part of a record, or a message of TLS itself
            raise BlockingIOError
        return size, stamp, flags, sender

    def _end(self) -> None:
        """Ends the connection, as the server has by a message of TLS: it may wait for ours before it closes its side.

        The next read then finds the end at once.
        """
        with contextlib.suppress(OSError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._flush()
            self._sock.shutdown(socket.SHUT_RDWR)

    def _flush(self) -> bool:
        """Sends what the socket accepts; whether that was all."""
        self._unsent += self._to_send.read()
        if self._unsent:
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except BlockingIOError:
                return False
        return not self._unsent


STAMP_BYTES = socket.CMSG_SPACE(16)
NO_STAMP = bytes(16)
_OF_A_PIECE = 64
"""Memory that a piece takes besides its bytes, at most."""
_MOST_BYTES = 256 << 10
_MOST_BYTES_PER_TOKEN = 2 << 10
"""Engines send 200 to 600 bytes per token, their framing and `_OF_A_PIECE` included."""
_FRAMING = (b"content-length", b"transfer-encoding")


class Exchange:
    """A request and its answer so far. The event loop fills it; the body is read after the round."""

    def __init__(self, index: int, message: bytes, started_at: float, output_tokens: int) -> None:
        self.index = index
        """Position among the plan's requests."""
        self.unsent: memoryview | None = memoryview(message)
        """Bytes left to send; None when all are sent."""
        self.server = 0
        """Number of the server, of several."""
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
        self.left = _MOST_BYTES + _MOST_BYTES_PER_TOKEN * output_tokens
        """Bytes of memory that the rest of the answer may take; a longer one is not what was asked for."""
        self.status: int | None = None
        self.complete = False
        """Whether the answer itself marked its end; False if the end of the connection did."""
        self.body = bytearray()
        """The answer so far, without its HTTP framing."""
        self.ends = array("Q")
        """Length of the body after each piece."""
        self.stamps = bytearray()
        """The kernel's stamp of each piece, 16 bytes each."""
        self.read_at = array("d")
        """When each piece was read."""
        self.location: bytes | None = None
        """Where the answer says that what was asked for is."""
        self._is_framed = False
        self._parser: Any = httptools.HttpResponseParser(self)

    def take(self, piece: memoryview) -> bool:
        """Adds a piece of the answer; whether the answer is complete with it. `ValueError` if it is not HTTP."""
        self.left -= len(piece) + _OF_A_PIECE
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

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"location":
            self.location = value
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
            self.complete = True
