"""Reads a streamed answer after the round: events, their arrival times, and whether the request succeeded.

An event has arrived when the piece that completes it has: one split over several pieces has the time of the last,
several in one piece have the same time. An event carries a token if its choice has text, content or reasoning. Empty
text also counts, since a token can be half a character or a special one, except beside a role (the event that opens a
chat) or a finish reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

_DONE = b"[DONE]"
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "text")
_EXCERPT = 300


@dataclass
class Answer:
    """What a streamed answer said, and when."""

    token_times: list[float] = field(default_factory=list)
    """Arrival of each event that carries a token."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    """The closing `[DONE]` came."""
    error: str | None = None


def read_answer(body: bytes, stamps: Sequence[float], offsets: Sequence[int]) -> Answer:
    """The answer in a body of server-sent events, whose bytes up to `offsets[i]` had come at `stamps[i]`.

    What follows an event that cannot be read is left out, and `error` says so.
    """
    answer = Answer()
    piece = 0
    for data, end in _events(body):
        while offsets[piece] < end:
            piece += 1
        if data == _DONE:
            answer.done = True
            break
        answer.error = _read_event(data, stamps[piece], answer)
        if answer.error:
            break
    return answer


def excerpt(body: bytes) -> str:
    """The start of a body on one line, for an error: the server's message if it has one."""
    try:
        error = orjson.loads(body)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = body[: 4 * _EXCERPT].decode(errors="replace")
    return " ".join(str(text).split())[:_EXCERPT]


def _events(body: bytes) -> Iterator[tuple[bytes, int]]:
    """Data of each complete event and the offset of its end; comments and other fields are left out."""
    separator = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    end = 0
    for block in body.split(separator)[:-1]:
        end += len(block) + len(separator)
        data = [line[5:].removeprefix(b" ") for line in block.splitlines() if line.startswith(b"data:")]
        if data:
            yield b"\n".join(data), end


def _read_event(data: bytes, at: float, answer: Answer) -> str | None:
    """Adds one event to the answer; returns what is wrong with it, or None."""
    try:
        event = orjson.loads(data)
        if event.get("error"):
            return f"server_error: {excerpt(data)}"
        for choice in event.get("choices") or []:
            if _carries_token(choice):
                answer.token_times.append(at)
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        if usage := event.get("usage"):
            answer.input_tokens = usage["prompt_tokens"]
            answer.output_tokens = usage["completion_tokens"]
            answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return f"broken_event: {excerpt(data)}"
    return None


def _carries_token(choice: dict[str, Any]) -> bool:
    said = choice.get("delta", choice)
    empty = False
    for name in _TEXT_FIELDS:
        text = said.get(name)
        if text:
            return True
        empty = empty or text == ""
    return empty and not said.get("role") and not choice.get("finish_reason")
