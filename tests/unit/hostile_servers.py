"""Servers made to harm a load client, from a seeded generator: what each answers, as pieces to send."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stub_server import StubServer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
END = b"0\r\n\r\n"
MOST_BYTES = 64 << 20
"""What a server sends at most that would never stop: far more than a client may read."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(content: Any) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"data: " + text + b"\n\n"


def token(text: str = "a", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None} | more]}


def usage(**changed: Any) -> dict[str, Any]:
    told = {"prompt_tokens": 7, "completion_tokens": 6, "prompt_tokens_details": None}
    return {"choices": [], "usage": told | changed}


def answer(*events: Any, last: Any = None, done: bytes = b"data: [DONE]\n\n") -> list[bytes]:
    """A whole answer of 6 tokens, with further events before its usage."""
    parts = [event(token())] * 6 + [event(each) for each in events] + [event(usage() if last is None else last)]
    return [HEAD, *(chunk(part) for part in [*parts, done]), END]


def endless(piece: bytes) -> Iterator[bytes]:
    """One piece again and again, in large writes."""
    block = piece * max(1, (1 << 16) // len(piece))
    return itertools.repeat(block, MOST_BYTES // len(block))


def _odd(draw: random.Random) -> Any:
    """A value that is no count and no text."""
    deep: Any = 1
    for _ in range(draw.randrange(3, 60)):
        deep = [deep] if draw.random() < 0.5 else {"a": deep}
    return draw.choice(
        [True, False, -1, -(2**70), 2**31, 2**63, 10**30, 1e99, 1.5, "7", "", {}, [], [1], {"a": 1}, deep]
    )


def _lines(draw: random.Random) -> bytes:
    one, other = json.dumps(token("abc")), json.dumps(token("abd"))
    return draw.choice(
        [
            f"data: {one}\rdata: {other}\n\n",
            f"data: {one}\rid: 3\n\n",
            f"data: {one}\r\r\n\n",
            f"data: {one[:-1]}\ndata: }}\n\n",
            f"event: x\rdata: {one}\n\n",
        ]
    ).encode()


Made = Callable[[random.Random], Iterable[bytes]]
KINDS: dict[str, Made] = {
    "zeros": lambda draw: endless(b"\0"),
    "a shell script": lambda draw: endless(b"#!/bin/sh\n"),
    "a head without end": lambda draw: itertools.chain([b"HTTP/1.1 200 OK\r\n"], endless(b"X-A: b\r\n")),
    "tokens without end": lambda draw: itertools.chain([HEAD], endless(chunk(event(token())))),
    "a chunk without end": lambda draw: itertools.chain([HEAD, b"ffffffffff\r\n"], endless(b"data: x\n\n")),
    "comments without end": lambda draw: itertools.chain([HEAD], endless(chunk(b":\n\n"))),
    "an event without end": lambda draw: itertools.chain([PLAIN, b"data: "], endless(b"x")),
    "a head in single bytes": lambda draw: (b"%c" % byte for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 6000),
    "a length": lambda draw: [
        b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n"
        % draw.choice([b"-5", b"+5", b"1" * 30, b"9" * 6000, b"5, 6", b"0x10", b"1_0", b"", b"\xb2"]),
        event(token()),
    ],
    "a length and chunks": lambda draw: [HEAD[:-2] + b"Content-Length: 5\r\n\r\n", *answer()[1:]],
    "a chunk's length": lambda draw: [
        HEAD,
        draw.choice([b"-5", b"f" * 100_000, b"0x5", b"5;" + b"x" * 90_000, b"", b" 5", b"5 5"]) + b"\r\ndata:\r\n",
        END,
    ],
    "an empty body": lambda draw: [HEAD, END],
    "trailers without end": lambda draw: itertools.chain(answer()[:-1], [b"0\r\n"], endless(b"X-A: b\r\n")),
    "a large error": lambda draw: [b"HTTP/1.1 500 X\r\nContent-Length: 200000\r\n\r\n", b"[" * 200_000],
    "an error with control characters": lambda draw: [
        b"HTTP/1.1 500 X\r\nConnection: close\r\n\r\n",
        json.dumps({"error": {"message": "\x1b[2J\x07\0\u202e" * draw.randrange(1, 999)}}).encode(),
    ],
    "finish_reason": lambda draw: answer(
        token(finish_reason=draw.choice([{}, [], {"type": "stop"}, 5, True, "x" * 90_000]) or {"a": 1})
    ),
    "completion_tokens": lambda draw: answer(last=usage(completion_tokens=_odd(draw))),
    "prompt_tokens_details": lambda draw: answer(last=usage(prompt_tokens_details=draw.choice([[1], "x", 5, True]))),
    "choices": lambda draw: answer({"choices": draw.choice([{"a": 1}, "ab", 5, [None], [[]], [5], True, ["x"]])}),
    "no object": lambda draw: answer(draw.choice([5, "x", None, [1], True, [[]]])),
    "error": lambda draw: answer(
        {
            "error": draw.choice(
                [[1], "x" * 90_000, 5, True, {"message": {"a": 1}}, {"message": "\x1b[2J\0\n"}, {"a": 1}]
            )
        }
    ),
    "deep JSON": lambda draw: answer(b"[" * draw.randrange(2000, 90_000)),
    "a number of many digits": lambda draw: answer(b'{"id": ' + b"9" * draw.randrange(4301, 90_000) + b"}"),
    "a surrogate": lambda draw: answer(b'{"choices": [{"delta": {"content": "\\ud800"}}]}'),
    "keys twice": lambda draw: answer(b'{"choices": [{"delta": {"content": "a", "content": 5}}]}'),
    "lines within an event": lambda draw: [HEAD, *[chunk(_lines(draw)) for _ in range(draw.randrange(1, 99))], END],
    "thousands of choices": lambda draw: answer({"choices": [{"delta": {"content": "a"}}] * draw.randrange(100, 4000)}),
    "a huge key": lambda draw: answer({"k" * draw.randrange(1000, 150_000): 1}),
    "silence after the head": lambda draw: [HEAD, b"WAIT"],
    "a slow drip": lambda draw: [HEAD, *[b"SLOW" + bytes([byte]) for byte in b"1\r\n:\r\n" * 50]],
    "nothing": lambda draw: [b"WAIT"],
}


class HostileServer(StubServer):
    """Answers prompts that begin with `hostile` as its kind and seed say, and all others as it should."""

    def __init__(self, kind: str, seed: int) -> None:
        super().__init__()
        self._pieces = lambda: KINDS[kind](random.Random(f"{kind} {seed}"))

    async def _hostile(self, writer: Any, body: Any) -> None:
        import asyncio

        for piece in self._pieces():
            if piece == b"RESET":
                writer.transport.abort()
                return
            if piece == b"WAIT":
                await asyncio.sleep(60)
            if piece.startswith(b"SLOW"):
                piece = piece[4:]
                await asyncio.sleep(0.05)
            writer.write(piece)
            await writer.drain()
