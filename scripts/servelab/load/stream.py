"""Reads a streamed answer after the round: events, their arrival times, and whether the request succeeded.

An event has arrived when the piece that completes it has: one split over several pieces has the time of the last,
several in one piece have the same time. An event carries a token if its choice has text, content or reasoning. Empty
text also counts, since a token can be half a character or a special one, except beside a role (the event that opens a
chat) or a finish reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

_DONE = b"[DONE]"
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "text")
_TEXT = re.compile(rb'"(%s)" ?: ?"((?:[^"\\]|\\.)*)"' % "|".join(_TEXT_FIELDS).encode())
_PLAIN = re.compile(rb'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*').fullmatch
"""The inside of a JSON string."""
_EXCERPT = 300


@dataclass
class Answer:
    """What a streamed answer said, and when."""

    token_times: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Arrival of each event that carries a token."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    """The closing `[DONE]` came."""
    error: str | None = None


def read_answer(
    body: bytes, stamps: Sequence[float] | npt.NDArray[Any], offsets: Sequence[int] | npt.NDArray[Any]
) -> Answer:
    """The answer in a body of server-sent events, whose bytes up to `offsets[i]` had come at `stamps[i]`.

    What follows an event that cannot be read is left out, and `error` says so. Of events that differ from one before
    in nothing but their text, only the first is parsed.
    """
    answer = Answer()
    separator = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    blocks = body.split(separator)
    blocks.pop()  # what follows the last separator is no complete event
    tokens: list[int] = []
    before, after = b"\n", b"\n"  # no event begins so
    for position, block in enumerate(blocks):
        if (
            block.startswith(before)
            and block.endswith(after)
            and len(block) >= len(before) + len(after)
            and _PLAIN(block, len(before), len(block) - len(after))
        ):
            tokens.append(position)
            continue
        data = _data(block)
        if data is None:
            continue
        if data == _DONE:
            answer.done = True
            break
        event = _read_event(data, answer)
        if event is None:
            break
        if event.carries_token:
            tokens.append(position)
            before, after = _shape(block, event.content) or (before, after)
    if tokens:
        lengths = np.fromiter(map(len, blocks), dtype=np.int64, count=len(blocks)) + len(separator)
        pieces = np.searchsorted(np.asarray(offsets, dtype=np.int64), np.cumsum(lengths)[tokens])
        answer.token_times = np.asarray(stamps, dtype=np.float64)[pieces]
    return answer


def excerpt(body: bytes) -> str:
    """The start of a body on one line, for an error: the server's message if it has one."""
    try:
        error = orjson.loads(body)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = body[: 4 * _EXCERPT].decode(errors="replace")
    return " ".join(str(text).split())[:_EXCERPT]


def _data(block: bytes) -> bytes | None:
    """An event's data; None for a comment or an event of other fields."""
    data = [line[5:].removeprefix(b" ") for line in block.splitlines() if line.startswith(b"data:")]
    return b"\n".join(data) if data else None


@dataclass(frozen=True)
class _Event:
    content: dict[str, Any]
    carries_token: bool


def _read_event(data: bytes, answer: Answer) -> _Event | None:
    """One event, whose usage and finish reason go into the answer; None if it ends the answer with an error."""
    try:
        event = orjson.loads(data)
        if event.get("error"):
            answer.error = f"server_error: {excerpt(data)}"
            return None
        carries_token = False
        for choice in event.get("choices") or []:
            carries_token |= _carries_token(choice)
            answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        if usage := event.get("usage"):
            answer.input_tokens = usage["prompt_tokens"]
            answer.output_tokens = usage["completion_tokens"]
            answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        answer.error = f"broken_event: {excerpt(data)}"
        return None
    return _Event(event, carries_token)


def _carries_token(choice: dict[str, Any]) -> bool:
    said = choice.get("delta", choice)
    empty = False
    for name in _TEXT_FIELDS:
        text = said.get(name)
        if text:
            return True
        empty = empty or text == ""
    return empty and not said.get("role") and not choice.get("finish_reason")


def _shape(block: bytes, event: dict[str, Any]) -> tuple[bytes, bytes] | None:
    """What stands before and after the text of an event, if any other text there would make it carry a token too.

    Proved by putting another text there: the event may change in nothing else.
    """
    choices = event["choices"]
    choice = choices[0]
    said = choice.get("delta", choice)
    if len(choices) > 1 or event.get("usage") or said.get("role") or choice.get("finish_reason"):
        return None
    for found in _TEXT.finditer(block):
        name = found[1].decode()
        before, after = block[: found.start(2)], block[found.end(2) :]
        if said.get(name) and before.startswith(b"data:") and b"\n" not in block:
            said[name] = "Q"
            return (before, after) if orjson.loads(before[5:] + b"Q" + after) == event else None
    return None
