"""A server on loopback with OpenAI's API: it answers a prompt that is the name of a quirk by its script, others well.

A script is what it sends, with pauses in seconds; when each token was sent is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

FIRST_TOKEN_S = 0.05
GAP_S = 0.01
TEMPLATE_TOKENS = 3
MODEL = "stub/model"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
RESET, HANG = "reset", "hang"
Script = Iterable[bytes | float | str]


class Token(bytes):
    """Bytes that complete an event with a token."""


def event(content: Any) -> bytes:
    return b"data: " + (content if isinstance(content, bytes) else json.dumps(content).encode()) + b"\n\n"


def piece(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    """An event of a chat."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def token(body: dict[str, Any], text: str = "a ") -> Token:
    if "messages" in body:
        return Token(event(piece(content=text)))
    choice = {"index": 0, "text": text, "finish_reason": None}
    return Token(event({"object": "text_completion", "choices": [choice]}))


def usage(body: dict[str, Any], **changed: Any) -> bytes:
    """The event with the counts: a token a word, and three for a template."""
    prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
    counted = len(prompt.split()) + TEMPLATE_TOKENS if isinstance(prompt, str) else len(prompt)
    told = {"prompt_tokens": counted, "completion_tokens": tokens_asked(body)}
    told |= {"prompt_tokens_details": {"cached_tokens": 0}} | changed
    kind = "chat.completion.chunk" if "messages" in body else "text_completion"
    return event({"object": kind, "choices": [], "usage": told})


def tokens_asked(body: dict[str, Any]) -> int:
    return int(body.get("max_completion_tokens", body.get("max_tokens")))


def events(body: dict[str, Any], tokens: Iterable[bytes] | None = None, last: Iterable[bytes] | None = None) -> list:
    """The events of an answer: a comment and a role before its tokens, the end, usage and `[DONE]` after them."""
    opening = [b": a comment\n\n", event(piece(role="assistant", content=""))] if "messages" in body else []
    middle = [token(body)] * tokens_asked(body) if tokens is None else tokens
    closing = [event(piece("length", content="")), usage(body), DONE] if last is None else last
    return [*opening, *middle, *closing]


def chunk(data: bytes) -> bytes:
    return type(data)(b"%x\r\n%b\r\n" % (len(data), data))


def stream(pieces: Iterable[bytes], gap_s: float = GAP_S) -> Script:
    """Pieces of an answer in chunks of their own."""
    return [HEAD, FIRST_TOKEN_S, *(step for each in pieces for step in (chunk(each), gap_s)), END]


def status(number: int, text: str, head: str = "") -> Script:
    return [f"HTTP/1.1 {number} X\r\n{head}Content-Length: {len(text.encode())}\r\n\r\n{text}".encode()]


class StubServer:
    """Speaks HTTP/1.1 and server-sent events by hand, so that it can break either."""

    def __init__(self, *, host: str = "127.0.0.1", backlog: int = 2048, **says: Any) -> None:
        """`says` is what it wants and says of itself: see `_script`."""
        self._host, self._backlog, self.says = host, backlog, says
        self.bodies: list[dict] = []
        self.heads: list[str] = []
        self.paths: list[str] = []
        self.sent: dict[str, list[tuple[float, float]]] = {}
        """Prompt → before and after each of its tokens was sent, on the monotonic clock."""
        self.peak_concurrency = self._open = 0
        self._loop = asyncio.new_event_loop()

    def _script(self, head: str, path: str, body: dict[str, Any]) -> Script:
        """What it answers to a request."""
        says, path = self.says, path.removesuffix(self.says.get("query", ""))
        if moved := says.get("moved"):
            return status(307, "", f"Location: {moved}{path}\r\n")
        header = f"\r\n{says.get('header', 'authorization: bearer')} {says.get('key')}\r\n".lower()
        if (key := says.get("key")) and header not in head.lower():
            return status(401, json.dumps({"error": {"message": f"wrong key, not {key}"}}))
        if path == "/version":
            known = says.get("version")
            return status(200 if known else 404, json.dumps({"version": known}))
        call = path.removeprefix(says.get("root", "/v1"))
        if call == path or (call == "/models" and says.get("lists") is False):
            return status(404, "Not Found")
        if call == "/models":
            entry = {"id": MODEL} | ({"max_model_len": says["longest"]} if says.get("longest") else {})
            return status(200, json.dumps({"data": [entry, {"id": "other"}]}))
        if refused := [name for name in says.get("refuses", ()) if name in body]:
            return status(400, json.dumps({"error": {"message": f"unknown {refused[0]}"}}))
        if says.get("ends_early") and not body.get("ignore_eos"):
            body["max_tokens"] //= 2
        prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        named = [name for name in says.get("quirks", ()) if f"{prompt} ".startswith(f"{name} ")]
        if named:
            return says["quirks"][max(named, key=len)](body)
        gone = {line for name, line in (("usage", usage(body)), ("done", DONE)) if says.get(name) is False}
        return stream([each for each in events(body) if each not in gone], says.get("gap_s", GAP_S))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self.peak_concurrency = max(self.peak_concurrency, self._open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length")]
            body = json.loads(await reader.readexactly(lengths[0])) if lengths else {}
            self.heads.append(head)
            if body:
                self.bodies.append(body)
                self.paths.append(head.split()[1])
            await self._play(writer, body, self._script(head, head.split()[1], body))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open -= 1
            writer.close()

    async def _play(self, writer: asyncio.StreamWriter, body: dict[str, Any], script: Script) -> None:
        sent = self.sent.setdefault(str(body.get("messages", [{}])[-1].get("content")), [])
        for step in script:
            if step == RESET:
                writer.transport.abort()
                return
            if not isinstance(step, bytes):
                await asyncio.sleep(3600 if step == HANG else float(step))
                continue
            before = time.monotonic()
            writer.write(step)
            await writer.drain()
            if isinstance(step, Token):
                sent.append((before, time.monotonic()))

    def sleep(self, seconds: float) -> None:
        """Does nothing for so long, not even accept connections."""
        self._loop.call_soon_threadsafe(time.sleep, seconds)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serves until the block ends, from a thread; yields the base URL."""
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
