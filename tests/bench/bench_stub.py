"""A server on loopback with a known schedule, cheap enough for 1,000 streams at once, that records what it really did.

    python bench_stub.py --schedule '{"first_token_ms": 100, "gap_ms": 20}' --records FILE

speaks the OpenAI API's streams (`/v1/completions`, `/v1/chat/completions`), `/v1/models` and `/health`. It prints its
port when it listens, and writes FILE (see `Records`) when it gets SIGTERM. One thread and one epoll loop, because
threads or asyncio would cost more than the clients it is to load; nothing but loading the records needs a package.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import time
from array import array
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SO_TIMESTAMPNS = 35
"""Linux' option that the kernel tells when data arrived; Python has no name for it."""
MODEL = "stub"


@dataclass(frozen=True)
class Schedule:
    """When a request's tokens leave, counted from when the request arrived."""

    first_token_ms: float = 100.0
    first_token_spread_ms: float = 0.0
    """Each request waits up to so much longer, drawn with `seed`."""
    gap_ms: float = 20.0
    gap_spread: float = 0.0
    """Each request's gap is up to this share longer, drawn with `seed`."""
    tokens_per_burst: int = 1
    """So many events, each written on its own, follow one gap."""
    tick_ms: float = 1.0
    """Tokens leave at whole ticks: a tick as long as the gap moves all streams in step, as an engine's batch does."""
    seed: int = 0


class Stream:
    """One answer under way."""

    __slots__ = ("due_ns", "event", "gap_ns", "keeps", "last", "left", "sock", "unsent", "written")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.unsent = b""
        self.written = array("q")
        """Monotonic ns just before each token's event was written."""


class Connection:
    """What has come in on a socket and is not yet a request."""

    __slots__ = ("data", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.data = sock, b""


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(content: dict[str, object]) -> bytes:
    return _chunk(b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
_MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "stub", "max_model_len": 32768}]}
_GET = {b"/health": b"{}", b"/v1/models": json.dumps(_MODELS).encode()}


@cache
def answer_of(chat: bool, tokens: int, prompt_tokens: int = 8, cached: int = 0) -> tuple[bytes, bytes, bytes, bytes]:
    """What opens the stream, an event, the last event, and what closes the stream; shaped as vLLM's are."""
    base: dict[str, object] = {"id": "cmpl-0123456789abcdef", "created": 1764000000, "model": MODEL}
    base["object"] = "chat.completion.chunk" if chat else "text_completion"

    def event(finish_reason: str | None) -> bytes:
        said: dict[str, object] = {"delta": {"content": " hello"}} if chat else {"text": " hello"}
        return _event(base | {"choices": [{"index": 0, **said, "logprobs": None, "finish_reason": finish_reason}]})

    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}
    usage |= {"prompt_tokens_details": {"cached_tokens": cached}} if cached else {}
    closing = _event(base | {"choices": [], "usage": usage}) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    return _event(base | {"choices": [role]}) if chat else b"", event(None), event("length"), closing


class Stub:
    """The loop."""

    def __init__(self, schedule: Schedule, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._schedule = schedule
        self._draw = random.Random(schedule.seed)
        self._tick_ns = int(schedule.tick_ms * 1e6)
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._blocked: dict[int, Stream] = {}
        self._due: dict[int, list[Stream]] = defaultdict(list)
        self._ticks: list[int] = []
        self.received = array("q")
        """Monotonic ns at which the kernel took in each request."""
        self.written: list[array[int]] = []
        """The same for each request's tokens, just before they were written."""
        self.late_ns = array("q")
        """How much later than scheduled each token was written."""
        self._listener = socket.create_server(address, backlog=4096)
        self._listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._listener.setblocking(False)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serves until the process is told to end."""
        while True:
            wait_s = max(0.0, (self._ticks[0] - time.monotonic_ns()) / 1e9) if self._ticks else -1
            self.poll(wait_s)
            while self._ticks and self._ticks[0] <= time.monotonic_ns():
                for stream in self._due.pop(heapq.heappop(self._ticks)):
                    self._step(stream)

    def poll(self, wait_s: float) -> None:
        """Takes in what has come, and sends what was held up."""
        for fd, events in self._epoll.poll(wait_s):
            if fd == self._listener.fileno():
                self._accept()
            elif events & select.EPOLLOUT:
                self._flush(self._blocked[fd])
            else:
                self._read(self._connections[fd])

    def _accept(self) -> None:
        try:
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[sock.fileno()] = Connection(sock)
                self._epoll.register(sock.fileno(), select.EPOLLIN)
        except BlockingIOError:
            pass

    def _read(self, connection: Connection) -> None:
        try:
            data, ancillary, _, _ = connection.sock.recvmsg(65536, 64)
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.close(connection)
            return
        connection.data += data
        head, separator, body = connection.data.partition(b"\r\n\r\n")
        if not separator:
            return
        method, path, _ = head.split(b"\r\n", 1)[0].split(b" ", 2)
        if method == b"POST" and len(body) < _content_length(head):
            return
        if method == b"POST" and path in (b"/v1/completions", b"/v1/chat/completions"):
            at = _monotonic_ns(ancillary) if ancillary else time.monotonic_ns()
            keeps = b"\r\nconnection: close" not in head.lower()
            self._begin(connection, json.loads(body), path == b"/v1/chat/completions", keeps, at)
        else:
            self.reply(connection, *self.answer(method, path))

    def answer(self, method: bytes, path: bytes) -> tuple[bytes, bytes]:
        """Status and body of what asks for no tokens."""
        is_there = method == b"GET" and path in _GET
        return b"200 OK" if is_there else b"404 Not Found", _GET[path] if is_there else b"{}"

    def reply(self, connection: Connection, status: bytes, body: bytes) -> None:
        connection.data = b""
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        connection.sock.send(head + body)

    def _begin(self, connection: Connection, body: dict[str, object], chat: bool, keeps: bool, at_ns: int) -> None:
        connection.data = b""
        tokens = body.get("max_completion_tokens") or body["max_tokens"]
        assert isinstance(tokens, int)
        opening, event, last, closing = answer_of(chat, tokens)
        schedule = self._schedule
        stream = Stream(connection.sock)
        stream.keeps = keeps
        stream.event, stream.last, stream.left = event, last + closing, tokens
        stream.gap_ns = int(1e6 * schedule.gap_ms * (1 + schedule.gap_spread * self._draw.random()))
        wait_ms = schedule.first_token_ms + schedule.first_token_spread_ms * self._draw.random()
        self.received.append(at_ns)
        self.written.append(stream.written)
        connection.sock.send(HEAD + (b"\r\n" if keeps else b"Connection: close\r\n\r\n") + opening)
        self._put(stream, at_ns + int(1e6 * wait_ms))

    def _put(self, stream: Stream, due_ns: int) -> None:
        """Schedules the stream's next burst for the first tick at or after `due_ns`."""
        stream.due_ns = due_ns
        tick = -(-due_ns // self._tick_ns) * self._tick_ns
        if tick not in self._due:
            heapq.heappush(self._ticks, tick)
        self._due[tick].append(stream)

    def _step(self, stream: Stream) -> None:
        for _ in range(min(stream.left, self._schedule.tokens_per_burst)):
            now = time.monotonic_ns()
            stream.written.append(now)
            self.late_ns.append(now - stream.due_ns)
            stream.left -= 1
            self.write(stream, stream.event if stream.left else stream.last)
        if stream.left:
            self._put(stream, stream.due_ns + stream.gap_ns)

    def write(self, stream: Stream, data: bytes) -> None:
        if stream.unsent:
            stream.unsent += data
            return
        try:
            data = data[stream.sock.send(data) :]
        except BlockingIOError:
            pass
        except OSError:  # the client has gone: what is left is for nobody
            stream.left = 0
            return
        if data:
            stream.unsent = data
            self._blocked[stream.sock.fileno()] = stream
            self._epoll.modify(stream.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        elif not stream.left and not stream.keeps:
            stream.sock.shutdown(socket.SHUT_WR)

    def _flush(self, stream: Stream) -> None:
        data, stream.unsent = stream.unsent, b""
        del self._blocked[stream.sock.fileno()]
        self._epoll.modify(stream.sock.fileno(), select.EPOLLIN)
        self.write(stream, data)

    def close(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        self._blocked.pop(fd, None)
        del self._connections[fd]
        self._epoll.unregister(fd)
        connection.sock.close()

    def save(self, path: Path) -> None:
        """Writes what `Records` reads."""
        import numpy as np

        written = [np.array(times, np.int64) for times in self.written]
        np.savez(
            path,
            received_ns=np.array(self.received, np.int64),
            written_ns=np.concatenate([np.empty(0, np.int64), *written]),
            tokens=np.array([len(times) for times in written], np.int64),
            late_ns=np.array(self.late_ns, np.int64),
        )


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _monotonic_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The kernel's time stamp, which is on the real-time clock, on the monotonic one."""
    seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
    return int(seconds * 1_000_000_000 + nanoseconds + time.monotonic_ns() - time.time_ns())


def main() -> None:
    """Serves until SIGTERM, then writes the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", type=json.loads, default={})
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--cpu", type=int, help="run on this CPU only")
    arguments = parser.parse_args()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stub = Stub(Schedule(**arguments.schedule))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(stub.port, flush=True)
    try:
        stub.run()
    finally:
        stub.save(arguments.records)


if __name__ == "__main__":
    main()
