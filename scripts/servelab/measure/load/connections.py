"""Connections to the server: plain ones, and TLS over the same non-blocking sockets, with the kernel's stamps."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from servelab.measure.load import LoadPlan

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]

SO_TIMESTAMPNS = 35
"""Linux: `recvmsg` gives the time at which the kernel received the data, as a `struct timespec`."""
_PIECE_BYTES = 1 << 15
"""Ciphertext of one read; the caller's buffer has room for more than its plain text."""


def resolve(plan: LoadPlan) -> list[Address]:
    """The server's addresses, in the order to try them; `OSError` if its name cannot be resolved."""
    found = socket.getaddrinfo(*plan.address, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


def trusted(plan: LoadPlan) -> ssl.SSLContext | None:
    """Certificates that count, those of the system or of SSL_CERT_FILE; None if the server is reached without TLS."""
    return ssl.create_default_context() if urlsplit(plan.base_url).scheme == "https" else None


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
