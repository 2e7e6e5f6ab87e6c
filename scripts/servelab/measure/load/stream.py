"""Reads a streamed answer after the round: events, their arrival times, and whether the request succeeded.

An event arrives with the piece that completes it: an event split over several pieces has the time of the last one,
several events in one piece have the same time. An event carries a token if its choice has text, content or reasoning.
Empty text counts too, because a token can be half a character or a special token, unless a role (the event that opens a
chat) or a finish reason comes with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from servelab.core.credentials import without_credentials

_DONE = b"[DONE]"
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "text")
_TEXT = re.compile(rb'"(%s)" ?: ?"((?:[^"\\]|\\.)*)"' % "|".join(_TEXT_FIELDS).encode())
_PLAIN = re.compile(rb'[^"\\\x00-\x09\x0b-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x09\x0b-\x1f]*)*').match
"""The content of JSON strings, one per line."""
_KEY_BYTES = 8
_SHORT_RUN = 4
_SHORT_RUNS = 8
"""After `_SHORT_RUNS` runs of fewer than `_SHORT_RUN` equal-shaped events, events are parsed one by one."""
_WINDOW_BYTES = 1 << 13
_EXCERPT = 300
_MOST_TOKENS = 1 << 31
_MOST_REASON = 64
"""Characters of a finish reason."""


@dataclass
class Answer:
    """Content of a streamed answer, and its times."""

    token_times: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Arrival of each event that carries a token."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    """Whether the closing `[DONE]` arrived."""
    error: str | None = None


def read_answer(
    body: bytes,
    stamps: Sequence[float] | npt.NDArray[Any],
    offsets: Sequence[int] | npt.NDArray[Any],
    most_events: int = 1 << 20,
) -> Answer:
    """The answer in a body of server-sent events; its bytes up to `offsets[i]` had arrived at `stamps[i]`.

    Reading stops at an event that cannot be read, or after `most_events`, and `error` says so. Events that differ from
    an earlier one only in their text are not parsed, and not counted.
    """
    answer = Answer()
    separator = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    ends: list[npt.NDArray[np.int64]] = []
    """Ends in the body of the events that carry a token."""
    shape: _Shape | None = None
    position = short_runs = events = 0
    window = _WINDOW_BYTES
    while True:
        if shape is not None and short_runs < _SHORT_RUNS:
            run = _run(body, position, shape, window)
            if len(run):
                ends.append(run)
                taken = int(run[-1]) - position
                position += taken
                is_cut = taken >= window
                # A run is looked for in twice as much as the last one took: what is copied stays in proportion.
                window = max(_WINDOW_BYTES, 2 * taken)
                if is_cut:  # by the window, not by another event
                    continue
            short_runs += len(run) < _SHORT_RUN
        events += 1
        if events > most_events:
            answer.error = f"broken_event: more than {most_events} events"
            break
        end = body.find(separator, position)
        if end < 0:  # no complete event follows the last separator
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
    """The start of a body on one line, for an error: the server's message if it has one, without credentials."""
    try:
        error = orjson.loads(body)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = body[: 4 * _EXCERPT].decode(errors="replace")
    shown = " ".join(without_credentials(str(text)[: 4 * _EXCERPT]).split())[:_EXCERPT]
    return "".join(character if character.isprintable() else "�" for character in shown)


def _data(block: bytes) -> bytes | None:
    """An event's data; None for a comment or an event without data."""
    data = [line[5:].removeprefix(b" ") for line in block.splitlines() if line.startswith(b"data:")]
    return b"\n".join(data) if data else None


@dataclass(frozen=True)
class _Event:
    content: dict[str, Any]
    carries_token: bool


def _read_event(data: bytes, answer: Answer) -> _Event | None:
    """Reads one event; puts its usage and finish reason into the answer. None if it ends the answer with an error."""
    try:
        event = orjson.loads(data)
        if event.get("error"):
            answer.error = f"server_error: {excerpt(data)}"
            return None
        carries_token = False
        for choice in event.get("choices") or []:
            carries_token |= _carries_token(choice)
            answer.finish_reason = _reason(choice.get("finish_reason")) or answer.finish_reason
        if usage := event.get("usage"):
            answer.input_tokens = _count(usage["prompt_tokens"])
            answer.output_tokens = _count(usage["completion_tokens"])
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            answer.cached_tokens = None if cached is None else _count(cached)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        answer.error = f"broken_event: {excerpt(data)}"
        return None
    return _Event(event, carries_token)


def _count(value: Any) -> int:
    """A number of tokens; `TypeError` for anything else, which no table could hold."""
    if type(value) is not int or not 0 <= value < _MOST_TOKENS:
        raise TypeError
    return value


def _reason(value: Any) -> str | None:
    """A finish reason; `TypeError` for anything else."""
    if value is not None and (not isinstance(value, str) or len(value) > _MOST_REASON):
        raise TypeError
    return value


def _carries_token(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta", choice)
    empty = False
    for name in _TEXT_FIELDS:
        text = delta.get(name)
        if text:
            return True
        empty = empty or text == ""
    return empty and not delta.get("role") and not choice.get("finish_reason")


@dataclass(frozen=True)
class _Shape:
    """An event's bytes before its text, and after it with the separator."""

    before: bytes
    after: bytes


def _shape(block: bytes, event: dict[str, Any], separator: bytes) -> _Shape | None:
    """The bytes around the text of an event, if the event would carry a token with any other text as well.

    Checked by putting another text there: nothing else of the event may change.
    """
    choices = event["choices"]
    choice = choices[0]
    delta = choice.get("delta", choice)
    if len(choices) > 1 or event.get("usage") or delta.get("role") or choice.get("finish_reason"):
        return None
    for found in _TEXT.finditer(block):
        name = found[1].decode()
        before, after = block[: found.start(2)], block[found.end(2) :]
        if delta.get(name) and before.startswith(b"data:") and b"\n" not in block:
            delta[name] = "Q"
            with suppress(orjson.JSONDecodeError):  # a block of several lines, each ended by a carriage return
                if orjson.loads(before[5:] + b"Q" + after) == event:
                    return _Shape(before, after + separator)
            return None
    return None


def _run(body: bytes, position: int, shape: _Shape, window: int) -> npt.NDArray[np.int64]:
    """Ends of the consecutive events of a shape that start at a position, of those within a window of bytes."""
    start = position + len(shape.before)
    if not body.startswith(shape.before, position):
        return np.empty(0, dtype=np.int64)
    # Split at a few bytes instead of everything between two texts: Python finds short separators much faster.
    key, between = shape.before[-_KEY_BYTES:], shape.after + shape.before[:-_KEY_BYTES]
    texts = []
    for part in body[start : start + window + _SHORT_RUN * (len(key) + len(between))].split(key):
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
