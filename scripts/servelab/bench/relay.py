"""A relay on loopback for what the load client does not speak: TLS, and a key in a header.

It passes bytes on as they come. Its delay is part of the times, which the report says. Only who knows its address with
the random name in it can use it, because it adds the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from servelab.bench.endpoint import trusted

_HEAD_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16
_BACKLOG = 4096


@contextlib.contextmanager
def relayed(url: str, key: str | None) -> Iterator[str]:
    """The address at which the load client reaches `url`: itself if it is plain HTTP without a key, else a relay."""
    if key is None and url.startswith("http://"):
        yield url
        return
    relay = _Relay(url, key)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(relay.serve, "127.0.0.1", 0, backlog=_BACKLOG))
    thread = threading.Thread(target=loop.run_forever, name="relay", daemon=True)
    thread.start()
    try:
        yield f"http://{relay.name}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(_cancel_others())
        loop.close()


class _Relay:
    """Adds the key to the head of each request; its connections end with the answer."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._host, self._port, self._netloc = parts.hostname, parts.port, parts.netloc
        self._context = trusted() if parts.scheme == "https" else None
        self._added = f"Authorization: Bearer {key}\r\n".encode() if key else b""
        self.name = secrets.token_hex(16)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one request and its answer on; closes without an answer where it cannot."""
        upstream: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            line, _, rest = head.partition(b"\r\n")
            host, _, rest = rest.partition(b"\r\n")
            if secrets.compare_digest(host.partition(b"@")[0], f"Host: {self.name}".encode()):
                answer, upstream = await asyncio.open_connection(
                    self._host, self._port, ssl=self._context, limit=_HEAD_BYTES
                )
                upstream.write(b"%b\r\nHost: %b\r\n%b%b" % (line, self._netloc.encode(), self._added, rest))
                sending = asyncio.create_task(_pass_on(reader, upstream))
                try:
                    await _pass_on(answer, writer)
                finally:
                    sending.cancel()
        for each in (upstream, writer):
            if each is not None:
                each.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
