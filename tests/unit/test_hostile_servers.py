"""Servers made to harm a load client: each bad answer fails only its own request, with a reason."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from made_load import OUTPUT_TOKENS, load
from stub_server import StubServer

from servelab.measure.load.records import ERRORS, read_answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
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


def answer(*events: Any, last: Any = None) -> list[bytes]:
    """A whole answer of 6 tokens, with further events before its usage."""
    parts = [event(token())] * 6 + [event(each) for each in events] + [event(usage() if last is None else last)]
    return [HEAD, *(chunk(part) for part in [*parts, b"data: [DONE]\n\n"]), END]


def endless(piece: bytes) -> Iterator[bytes]:
    """One piece again and again, in large writes."""
    block = piece * max(1, (1 << 16) // len(piece))
    return itertools.repeat(block, MOST_BYTES // len(block))


LENGTHS = [b"-5", b"1" * 30, b"5, 6", b"0x10", b"", b"\xb2"]
KINDS: dict[str, Callable[[random.Random], Iterable[bytes]]] = {
    "a head without end": lambda draw: itertools.chain([b"HTTP/1.1 200 OK\r\n"], endless(b"X-A: b\r\n")),
    "tokens without end": lambda draw: itertools.chain([HEAD], endless(chunk(event(token())))),
    "an event without end": lambda draw: itertools.chain([HEAD, b"ffffffffff\r\ndata: "], endless(b"x")),
    "a length": lambda draw: [b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % draw.choice(LENGTHS), event(token())],
    "a chunk's length": lambda draw: [HEAD, draw.choice([b"-5", b"f" * 100_000, b"0x5", b""]) + b"\r\ndata:\r\n", END],
    "an error with control characters": lambda draw: [
        b"HTTP/1.1 500 X\r\nConnection: close\r\n\r\n",
        json.dumps({"error": {"message": "\x1b[2J\x07\0\u202e" * draw.randrange(1, 999)}}).encode(),
    ],
    "finish_reason": lambda draw: answer(token(finish_reason=draw.choice([[5], {"type": "stop"}, 5, "x" * 90_000]))),
    "completion_tokens": lambda draw: answer(last=usage(completion_tokens=draw.choice([True, -1, 2**63, 1.5, "7"]))),
    "choices": lambda draw: answer({"choices": draw.choice([{"a": 1}, "ab", 5, [None], [[]], [5], True])}),
    "error": lambda draw: answer({"error": draw.choice([[1], "x" * 90_000, 5, {"message": "\x1b[2J\0\n"}])}),
    "deep JSON": lambda draw: answer(b"[" * draw.randrange(2000, 90_000)),
    "a surrogate": lambda draw: answer(b'{"choices": [{"delta": {"content": "\\ud800"}}]}'),
}


class HostileServer(StubServer):
    """Answers prompts that begin with `hostile` as its kind says, and all others as it should."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._pieces = lambda: KINDS[kind](random.Random(kind))

    async def _hostile(self, writer: Any, body: Any) -> None:
        for piece in self._pieces():
            writer.write(piece)
            await writer.drain()


def test_a_hostile_answer_fails_only_its_request(tmp_path):
    for kind in KINDS:
        with HostileServer(kind).running() as base_url:
            prompts = ["hostile", "normal", "hostile", "normal"]
            records = load(tmp_path, base_url, prompts, request_timeout_s=0.8, timeout_s=60.0)
        for record in records[0::2]:
            assert record["error"] and record["error"].split(":")[0] in ERRORS, kind
            assert record["error"].isprintable() and len(record["error"]) < 500, kind
        assert [record["error"] for record in records[1::2]] == [None, None], kind
        assert [record["output_tokens"] for record in records[1::2]] == [OUTPUT_TOKENS] * 2, kind


def test_a_count_that_is_none_is_a_broken_event():
    for name in ("prompt_tokens", "completion_tokens"):
        for value in (True, -1, 2**31, 1.5, "7", None, {}, [7]):
            found = read_answer(event(usage(**{name: value})))
            assert found.error is not None and found.error.startswith("broken_event: ")
