"""What servers and proxies do that differs from the API's letter, each as a script; and what the client makes of it."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from servers.stub_server import (
    DONE,
    END,
    GAP_S,
    HANG,
    HEAD,
    RESET,
    Script,
    Token,
    chunk,
    event,
    events,
    piece,
    status,
    stream,
    token,
    usage,
)

TOKENS = 6
"""Tokens that the requests ask for."""
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
LAST = event(piece("length", content=""))
MOST_BYTES = 64 << 20
"""What a server sends at most that would never stop: far more than a client may read."""


@dataclass(frozen=True)
class Quirk:
    """A way to answer, and the truth about it."""

    script: Callable[[dict[str, Any]], Script]
    error: str | None = None
    """How the record's error begins; None for a success."""
    http_status: int | None = 200
    streamed: int = TOKENS
    """Tokens in its events."""


def deltas(field: str, values: list[Any]) -> Callable[[dict[str, Any]], Script]:
    """Events that carry their tokens in a field of their own."""
    return lambda body: stream(events(body, [Token(event(piece(**{field: value}))) for value in values]))


def told(**changed: Any) -> Callable[[dict[str, Any]], Script]:
    """An answer with other counts."""
    return lambda body: stream(events(body, last=[LAST, usage(body, **changed), DONE]))


def with_lines(change: Callable[[bytes], bytes]) -> Callable[[dict[str, Any]], Script]:
    """The events with their lines changed."""
    return lambda body: stream(type(each)(change(each)) for each in events(body))


def whole(body: dict[str, Any]) -> bytes:
    return b"".join(events(body))


def plain(body: dict[str, Any]) -> Script:
    return [PLAIN, *(step for each in events(body) for step in (each, GAP_S))]


def hidden(body: dict[str, Any]) -> Script:
    counts = {"completion_tokens_details": {"reasoning_tokens": 4}}
    return stream(events(body, [token(body)] * 2, [LAST, usage(body, **counts), DONE]))


def looks_ended(body: dict[str, Any]) -> Iterator[bytes | float]:
    """A piece within the answer that ends with the bytes of a last chunk."""
    yield HEAD
    for each in [b": 0\n\n", *events(body)[1:]]:
        data = each.replace(b"\n", b"\r\n")
        yield b"%x\r\n%b" % (len(data), data)
        yield GAP_S
        yield b"\r\n"
    yield END


def single_bytes(data: bytes) -> Iterator[bytes | float]:
    for byte in data:
        yield bytes([byte])
        yield 0.0


QUIRKS = {
    "reasoning before": Quirk(deltas("reasoning_content", ["hm"] * TOKENS)),
    "reasoning by another name": Quirk(deltas("reasoning", ["hm"] * TOKENS)),
    "a refusal": Quirk(deltas("refusal", ["no"] * TOKENS)),
    "a tool call": Quirk(deltas("tool_calls", [[{"index": 0, "function": {"arguments": "{"}}]] * TOKENS)),
    "an empty token": Quirk(deltas("content", ["a", "", "\n\n", "é", "b", "c"])),
    "bursts": Quirk(deltas("content", ["ab ab", "ab ab", "ab ab"])),
    "hidden reasoning": Quirk(hidden, streamed=2),
    "reasoning shown and counted": Quirk(
        lambda body: stream(
            events(
                body,
                [Token(event(piece(reasoning_content="hm")))] * 4 + [token(body)] * 2,
                [LAST, usage(body, completion_tokens_details={"reasoning_tokens": 4}), DONE],
            )
        )
    ),
    "no details": Quirk(told(prompt_tokens_details=None, completion_tokens_details=None)),
    "the end with the last token": Quirk(
        lambda body: stream(
            events(body, [token(body)] * 5 + [Token(event(piece("stop", content="a")))], [usage(body), DONE])
        )
    ),
    "usage in every event": Quirk(
        lambda body: stream(events(body, [each for _ in range(TOKENS) for each in (token(body), usage(body))]))
    ),
    "a null error": Quirk(with_lines(lambda each: each.replace(b'"object"', b'"error": null, "object"'))),
    "no done": Quirk(lambda body: stream(events(body)[:-1])),
    "a done without its empty line": Quirk(lambda body: stream([*events(body)[:-1], DONE[:-1]])),
    "lines that end in CRLF": Quirk(with_lines(lambda each: each.replace(b"\n", b"\r\n"))),
    "a ping that ends in CRLF": Quirk(
        lambda body: stream([*events(body)[:4], b": ping\r\n\r\n", *events(body)[4:]])
    ),
    "names of events": Quirk(with_lines(lambda each: b"event: x\nid: 3\n" + each)),
    "no space after data": Quirk(with_lines(lambda each: each.replace(b"data: ", b"data:"))),
    "split and joined": Quirk(
        lambda body: stream([whole(body)[at : at + 37] for at in range(0, len(whole(body)), 37)], 0.0)
    ),
    "ended by close": Quirk(plain),
    "looks ended": Quirk(looks_ended),
    "trailers": Quirk(lambda body: [*list(stream(events(body)))[:-1], b"0\r\nX-Checksum: 1\r\n\r\n"]),
    "single bytes": Quirk(
        lambda body: itertools.chain([HEAD], single_bytes(b"".join(map(chunk, events(body))) + END))
    ),
    "sized": Quirk(
        lambda body: [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(whole(body)), *single_bytes(whole(body))]
    ),
    "stays open": Quirk(lambda body: [*stream(events(body)), 1.0]),
    # Refusals and faults.
    "too short": Quirk(
        lambda body: stream(events(body, [token(body)] * 5, [LAST, usage(body, completion_tokens=5), DONE])),
        "output_length: 5 tokens instead of 6",
    ),
    "no usage": Quirk(lambda body: stream(events(body, last=[LAST, DONE])), "no_usage"),
    "neither usage nor done": Quirk(lambda body: stream(events(body, last=[LAST])), "no_done"),
    "gzip": Quirk(lambda body: [PLAIN, gzip.compress(whole(body))], "no_stream: the answer is compressed with gzip"),
    "JSON, not a stream": Quirk(
        lambda body: status(200, '{"choices": [{"message": {"content": "a"}}]}'), "no_stream: the answer is JSON"
    ),
    "a broken event": Quirk(
        lambda body: stream(events(body, [b'data: {"choices": [{]}\n\n'])), 'broken_event: {"choices": [{]}'
    ),
    "an odd event": Quirk(lambda body: stream(events(body, [event(3)])), "broken_event: 3"),
    "an error event": Quirk(
        lambda body: stream([*events(body)[:-3], event({"error": {"message": "out of memory", "code": 500}})]),
        "server_error: out of memory",
    ),
    "an early close": Quirk(lambda body: [HEAD, *map(chunk, events(body)[:-3])], "closed_early"),
    "a reset": Quirk(lambda body: [HEAD, chunk(token(body)), RESET], "closed_early"),
    "refused": Quirk(lambda body: [RESET], "closed_early", None),
    "a stall": Quirk(lambda body: [HEAD, chunk(token(body)), HANG], "request_timeout: unfinished after 2 s"),
    "silence": Quirk(lambda body: [HANG], "request_timeout", None),
    "status 429": Quirk(
        lambda body: status(429, '{"error": {"message": "too\\nmany"}}'), "http_error: 429 too many", 429
    ),
    "status 500": Quirk(lambda body: status(500, "Internal"), "http_error: 500 Internal", 500),
    "a redirect": Quirk(
        lambda body: status(307, "", "Location: https://h/v1\r\n"), "http_error: 307 redirects to https://h/v1", 307
    ),
    "not HTTP": Quirk(lambda body: [b"SSH-2.0-OpenSSH_9.9\r\n"], "broken_http", None),
    "not HTTP, and open": Quirk(lambda body: [b"SSH-2.0-OpenSSH_9.9\r\n", HANG], "broken_http", None),
    "a bad chunk": Quirk(lambda body: [HEAD, b"zz\r\n" + token(body) + b"\r\n0\r\n\r\n"], "broken_http"),
}  # fmt: skip


def endless(data: bytes) -> Iterator[bytes]:
    """One piece again and again, in large writes."""
    block = data * max(1, (1 << 16) // len(data))
    return itertools.repeat(block, MOST_BYTES // len(block))


def _deep(depth: int) -> Any:
    return {"a": [_deep(depth - 1)]} if depth else 1


def _odd(body: dict[str, Any], **event_or_choice: Any) -> Script:
    return stream(events(body, [token(body), event(event_or_choice)]), 0.0)


HOSTILE: dict[str, Callable[[dict[str, Any]], Script]] = {
    "zeros": lambda body: endless(b"\0"),
    "a shell script": lambda body: endless(b"#!/bin/sh\n"),
    "a head without end": lambda body: itertools.chain([b"HTTP/1.1 200 OK\r\n"], endless(b"X-A: b\r\n")),
    "tokens without end": lambda body: itertools.chain([HEAD], endless(chunk(token(body)))),
    "a chunk without end": lambda body: itertools.chain([HEAD, b"ffffffffff\r\n"], endless(b"data: x\n\n")),
    "an event without end": lambda body: itertools.chain([PLAIN, b"data: "], endless(b"x")),
    "a length and chunks": lambda body: [HEAD[:-2] + b"Content-Length: 5\r\n\r\n", *map(chunk, events(body)), END],
    "an empty body": lambda body: [HEAD, END],
    "trailers without end": lambda body: itertools.chain(
        [HEAD, *map(chunk, events(body)), b"0\r\n"], endless(b"X-A: b\r\n")
    ),
    "a large error": lambda body: status(500, "[" * 200_000),
    "an error with control characters": lambda body: status(
        500, json.dumps({"error": {"message": "\x1b[2J\x07\0\u202e" * 400}})
    ),
    "deep JSON": lambda body: stream(events(body, [event(b"[" * 90_000)])),
    "a number of many digits": lambda body: stream(events(body, [event(b'{"id": ' + b"9" * 90_000 + b"}")])),
    "a surrogate": lambda body: stream(events(body, [event(b'{"choices": [{"delta": {"content": "\\ud800"}}]}')])),
    "a slow drip": lambda body: [HEAD, *(step for byte in b"1\r\n:\r\n" * 50 for step in (bytes([byte]), 0.05))],
    **{
        f"length {text[:9]!r}": lambda body, text=text: [b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % text]
        for text in (b"-5", b"+5", b"1" * 30, b"9" * 6000, b"5, 6", b"0x10", b"1_0", b"", b"\xb2")
    },
    **{
        f"chunk {text[:9]!r}": lambda body, text=text: [HEAD, text + b"\r\ndata:\r\n", END]
        for text in (b"-5", b"f" * 100_000, b"0x5", b"5;" + b"x" * 90_000, b"", b" 5", b"5 5")
    },
    **{
        f"{field} {str(value)[:9]}": lambda body, field=field, value=value: told(**{field: value})(body)
        for field, values in (
            ("completion_tokens", [True, -1, 2**31, 10**30, 1.5, "7", None, {}, [7], _deep(20)]),
            ("prompt_tokens", [True, -(2**70), 1e99, ""]),
            ("prompt_tokens_details", [[1], "x", 5, {"cached_tokens": -1}]),
            ("completion_tokens_details", [[1], {"reasoning_tokens": "7"}]),
        )
        for value in values
    },
    **{
        f"{field} {str(value)[:9]}": lambda body, field=field, value=value: _odd(body, **{field: value})
        for field, values in (
            ("choices", [{"a": 1}, "ab", 5, [None], [[]], [5], ["x"], [{"delta": 5}], [{"finish_reason": {"a": 1}}]]),
            ("error", [[1], "x" * 90_000, 5, True, {"message": {"a": 1}}, {"message": "\x1b[2J\0\n"}]),
        )
        for value in values
    },
}
"""Answers that harm, each a fault: it fails only its own request."""

SCRIPTS = {name: quirk.script for name, quirk in QUIRKS.items()} | HOSTILE
