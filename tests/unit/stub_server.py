"""A server on loopback that answers each request as its prompt asks, with a known schedule and known faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator

FIRST_TOKEN_S = 0.05
GAP_S = 0.01
INPUT_TOKENS = 7


class StubServer:
    """Speaks HTTP/1.1 and server-sent events by hand, so that it can break either."""

    def __init__(self, host: str = "127.0.0.1", backlog: int = 2048, most_requests: int = 1) -> None:
        self._host, self._backlog, self._most_requests = host, backlog, most_requests
        self.bodies: list[dict] = []
        self.paths: list[str] = []
        self.connections = 0
        self.peak_concurrency = 0
        self._open = 0
        self._loop = asyncio.new_event_loop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open += 1
        self.peak_concurrency = max(self.peak_concurrency, self._open)
        try:
            for _ in range(self._most_requests):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = head.split("\r\n")
                length = next(int(line.split(":")[1]) for line in lines if line.startswith("Content-Length"))
                body = json.loads(await reader.readexactly(length))
                self.bodies.append(body)
                self.paths.append(head.split()[1])
                prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
                behaviour = prompt.split()[0] if isinstance(prompt, str) else "normal"
                await getattr(self, f"_{behaviour}")(writer, body)
                if "Connection: close" in lines:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open -= 1
            writer.close()

    # Behaviours, by the first word of the prompt.

    async def _normal(self, writer, body) -> None:
        await self._stream(writer, [*self._opening(body), *self._tokens(body), *self._closing(body)])

    async def _plain_completion_events_split_and_joined(self, writer, body) -> None:
        whole = b"".join([*self._opening(body), *self._tokens(body), *self._closing(body)])
        await self._stream(writer, [whole[i : i + 37] for i in range(0, len(whole), 37)], pause=0.0)

    async def _several_tokens_an_event(self, writer, body) -> None:
        tokens = [self._event(content="ab " * 2) for _ in range(body["max_tokens"] // 2)]
        await self._stream(writer, [*self._opening(body), *tokens, *self._closing(body)])

    async def _reasoning_first(self, writer, body) -> None:
        tokens = [self._event(reasoning_content="hm") for _ in range(body["max_tokens"])]
        await self._stream(writer, [*self._opening(body), *tokens, *self._closing(body)])

    async def _ended_by_close(self, writer, body) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for event in [*self._opening(body), *self._tokens(body), *self._closing(body)]:
            writer.write(event)
        await writer.drain()

    async def _looks_ended(self, writer, body) -> None:
        # A piece within the answer that ends with the bytes of a last chunk.
        events = [b": 0\n\n", *self._tokens(body), b": 0\n\n", *self._closing(body)]
        await self._head(writer)
        for event in events:
            data = event.replace(b"\n", b"\r\n")
            writer.write(f"{len(data):x}\r\n".encode() + data)
            await asyncio.sleep(GAP_S)
            writer.write(b"\r\n")
        writer.write(b"0\r\n\r\n")

    async def _trailers(self, writer, body) -> None:
        await self._head(writer)
        for event in [*self._opening(body), *self._tokens(body), *self._closing(body)]:
            await self._chunk(writer, event)
        writer.write(b"0\r\nX-Checksum: 1\r\n\r\n")

    async def _one_byte_pieces(self, writer, body) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in [*self._tokens(body), *self._closing(body)]:
            for byte in f"{len(event):x}\r\n".encode() + event + b"\r\n":
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
        for byte in b"0\r\n\r\n":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.001)

    async def _sized(self, writer, body) -> None:
        text = b"".join([*self._opening(body), *self._tokens(body), *self._closing(body)])
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode())
        for start in range(0, len(text), 50):
            writer.write(text[start : start + 50])
            await asyncio.sleep(0.001)

    async def _stays_open(self, writer, body) -> None:
        await self._normal(writer, body)
        await asyncio.sleep(1)

    async def _early_answer(self, writer, body) -> None:
        await self._status(writer, 413, '{"error": {"message": "too long"}}')

    async def _not_http_and_open(self, writer, body) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        await asyncio.sleep(3600)

    async def _bad_chunk(self, writer, body) -> None:
        await self._head(writer)
        writer.write(b"zz\r\n" + self._tokens(body)[0] + b"\r\n0\r\n\r\n")

    async def _too_short(self, writer, body) -> None:
        body = {**body, "max_tokens": body["max_tokens"] - 1}
        await self._stream(writer, [*self._opening(body), *self._tokens(body), *self._closing(body)])

    async def _no_usage(self, writer, body) -> None:
        await self._stream(writer, [*self._opening(body), *self._tokens(body), b"data: [DONE]\n\n"])

    async def _no_done(self, writer, body) -> None:
        await self._stream(writer, [*self._opening(body), *self._tokens(body), *self._closing(body)[:-1]])

    async def _broken_event(self, writer, body) -> None:
        await self._stream(writer, [*self._opening(body), b'data: {"choices": [{]}\n\n', *self._closing(body)])

    async def _odd_event(self, writer, body) -> None:
        await self._stream(writer, [*self._opening(body), b"data: 3\n\n", *self._closing(body)])

    async def _error_event(self, writer, body) -> None:
        error = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
        await self._stream(writer, [*self._opening(body), *self._tokens(body), error])

    async def _early_close(self, writer, body) -> None:
        await self._head(writer)
        for event in [*self._opening(body), *self._tokens(body)]:
            await self._chunk(writer, event)

    async def _reset(self, writer, body) -> None:
        await self._head(writer)
        await self._chunk(writer, self._tokens(body)[0])
        writer.transport.abort()

    async def _refused(self, writer, body) -> None:
        writer.transport.abort()

    async def _stall(self, writer, body) -> None:
        await self._head(writer)
        await self._chunk(writer, self._tokens(body)[0])
        await asyncio.sleep(3600)

    async def _silence(self, writer, body) -> None:
        await asyncio.sleep(3600)

    async def _status_429(self, writer, body) -> None:
        await self._status(writer, 429, '{"error": {"message": "too many\\nrequests"}}')

    async def _status_500(self, writer, body) -> None:
        await self._status(writer, 500, "Internal Server Error")

    async def _not_http(self, writer, body) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        await writer.drain()

    # Pieces of an answer.

    @staticmethod
    async def _status(writer, status: int, text: str) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        await writer.drain()

    async def _stream(self, writer, pieces: list[bytes], pause: float = GAP_S) -> None:
        await self._head(writer)
        await asyncio.sleep(FIRST_TOKEN_S)
        for piece in pieces:
            await self._chunk(writer, piece)
            await asyncio.sleep(pause)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    @staticmethod
    async def _head(writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()

    @staticmethod
    async def _chunk(writer, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()

    @staticmethod
    def _event(finish_reason: str | None = None, **delta: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    def _opening(self, body) -> list[bytes]:
        return [b": a comment\n\n", self._event(role="assistant", content="")] if "messages" in body else []

    def _tokens(self, body) -> list[bytes]:
        if "messages" in body:
            return [self._event(content="a") for _ in range(body["max_tokens"])]
        text = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
        return [b"data: " + json.dumps(text).encode() + b"\n\n"] * body["max_tokens"]

    def _closing(self, body) -> list[bytes]:
        usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": body["max_tokens"], "prompt_tokens_details": None}
        return [
            self._event(finish_reason="length", content=""),
            b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n",
            b"data: [DONE]\n\n",
        ]

    # Its own thread.

    def sleep(self, seconds: float) -> None:
        """Does nothing for so long, not even accept connections."""
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serves until the block ends; yields the base URL."""
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, self._host, 0, backlog=self._backlog))
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            host = f"[{self._host}]" if ":" in self._host else self._host
            yield f"http://{host}:{server.sockets[0].getsockname()[1]}"
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            server.close()
            self._loop.run_until_complete(_cancel_others())
            self._loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
