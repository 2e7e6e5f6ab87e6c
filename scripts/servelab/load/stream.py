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
_PLAIN = re.compile(rb'[^"\\\x00-\x09\x0b-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x09\x0b-\x1f]*)*').match
"""The insides of JSON strings, a line each."""
_KEY_BYTES = 8
_SHORT_RUN = 4
_SHORT_RUNS = 8
"""After so many runs of so few events of one form, events are parsed one by one."""
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
    ends: list[npt.NDArray[np.int64]] = []
    """Ends in the body of the events that carry a token."""
    shape: _Shape | None = None
    position = short_runs = 0
    while True:
        if shape is not None and short_runs < _SHORT_RUNS:
            run = _run(body, position, shape)
            if len(run):
                ends.append(run)
                position = int(run[-1])
            short_runs += len(run) < _SHORT_RUN
        end = body.find(separator, position)
        if end < 0:  # what follows the last separator is no complete event
            break
        block = body[position:end]
        position = end + len(separator)
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
            ends.append(np.array([position]))
            shape = _shape(block, event.content, separator) or shape
    if ends:
        pieces = np.searchsorted(np.asarray(offsets, dtype=np.int64), np.concatenate(ends))
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


@dataclass(frozen=True)
class _Shape:
    """An event up to its text, and from there on with the separator."""

    before: bytes
    after: bytes


def _shape(block: bytes, event: dict[str, Any], separator: bytes) -> _Shape | None:
    """What stands around the text of an event, if with any other text there it would carry a token too.

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
            if orjson.loads(before[5:] + b"Q" + after) == event:
                return _Shape(before, after + separator)
            return None
    return None


def _run(body: bytes, position: int, shape: _Shape) -> npt.NDArray[np.int64]:
    """Ends of the events from a position on that are of a shape, up to the first that is not."""
    start = position + len(shape.before)
    if not body.startswith(shape.before, position):
        return np.empty(0, dtype=np.int64)
    # Split at a few bytes, not at all that stands between two texts: Python looks for short ones much faster.
    key, between = shape.before[-_KEY_BYTES:], shape.after + shape.before[:-_KEY_BYTES]
    texts = []
    for part in body[start:].split(key):
        if not part.endswith(between):
            text, after, _ = part.partition(shape.after)
            texts += [text] if after else []
            break
        texts.append(part[: -len(between)])
    lines = b"\n".join(texts) + b"\n"
    matched = _PLAIN(lines)
    good = lines.count(b"\n", 0, matched.end()) if matched else 0
    if matched is None or lines.count(b"\n") != len(texts):
        good = 0
    lengths = np.fromiter(map(len, texts[:good]), dtype=np.int64, count=good)
    return position + np.cumsum(lengths + len(shape.before) + len(shape.after))
