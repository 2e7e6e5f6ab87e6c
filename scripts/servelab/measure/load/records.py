"""Records of a round: one per exchange, as a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from servelab.core.credentials import without_credentials, without_key
from servelab.measure.load.clock import ClockDifference, Floats, Tape
from servelab.measure.load.exchange import Decoded, Exchange, decode
from servelab.measure.load.plan import LoadPlan, text_of
from servelab.measure.load.requests import LoadRequests, read_asked
from servelab.metrics.tables import schemas

_DONE = b"[DONE]"
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "text")
_TEXT = re.compile(rb'"(%s)" ?: ?"((?:[^"\\]|\\.)*)"' % "|".join(_TEXT_FIELDS).encode())
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*').fullmatch
"""The content of a JSON string without escaped code points."""
_EXCERPT = 300
_MOST_TOKENS = 1 << 31
_MOST_REASON = 64  # characters of a finish reason


@dataclass
class StreamedAnswer:
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
) -> StreamedAnswer:
    """The answer in a body of server-sent events; its bytes up to `offsets[i]` had arrived at `stamps[i]`.

    Reading stops at an event that cannot be read, or after `most_events`, and `error` says so. Events that differ from
    an earlier one only in their text are not parsed, and not counted.
    """
    answer = StreamedAnswer()
    separator = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    ends: list[int] = []
    """Ends in the body of the events that carry a token."""
    shape: _Shape | None = None
    position = events = 0
    for block in body.split(separator)[:-1]:  # no complete event follows the last separator
        position += len(block) + len(separator)
        if shape is not None and shape.fits(block):
            ends.append(position)
            continue
        events += 1
        if events > most_events:
            answer.error = f"broken_event: more than {most_events} events"
            break
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
            ends.append(position)
            shape = _shape(block, event.content) or shape
    if ends:
        pieces = np.searchsorted(np.asarray(offsets, dtype=np.int64), ends)
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


def _read_event(data: bytes, answer: StreamedAnswer) -> _Event | None:
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
    """An event's bytes before and after its text."""

    before: bytes
    after: bytes

    def fits(self, block: bytes) -> bool:
        """Whether an event differs in its text only."""
        start, end = len(self.before), len(block) - len(self.after)
        is_like = start <= end and block.startswith(self.before) and block.endswith(self.after)
        return is_like and _PLAIN(block, start, end) is not None


def _shape(block: bytes, event: dict[str, Any]) -> _Shape | None:
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
                    return _Shape(before, after)
            return None
    return None


ERRORS = {
    "connect_failed": "No connection could be made.",
    "closed_early": "The connection ended before the answer did.",
    "broken_http": "The answer is not HTTP.",
    "too_long": "The answer is several times as long as one of the tokens asked for; the rest was not read.",
    "http_error": "A status other than 200; the server's message follows.",
    "server_error": "An error event within the stream; its message follows.",
    "broken_event": "An event that is not what the OpenAI API defines.",
    "no_done": "The answer ended without `[DONE]`.",
    "no_usage": "The server sent no usage, so the output length cannot be checked.",
    "output_length": "The output has another length than the client asked for.",
    "request_timeout": "Unfinished after the plan's `request_timeout_s`.",
    "round_timeout": "Unfinished, or not yet sent, after the plan's `timeout_s`.",
    "turn_before": "Not sent, because the turn before it in its conversation failed.",
    "saturated": "Unfinished, or not yet sent, when `saturation_in_flight` ended the round.",
}
"""First word of a record's `error`, before a colon → its meaning."""

_EVENTS, _EVENTS_PER_TOKEN = 1024, 16
"""Most events of an answer, comments included, besides those that differ in their text only."""


@dataclass(frozen=True)
class Record:
    """Result of one request; times are seconds since the start of the round."""

    request: int
    """Position among the plan's requests."""
    scheduled_s: float | None = None
    """When it was due; None for one that was not sent, which has the time of its arrival."""
    started_s: float | None = None
    sent_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    end_s: float | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    chunks: int = 0
    gaps_ms: npt.NDArray[np.float32] | None = None
    unread_ms: float | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    error: str | None = None
    text: str | None = None
    """The answer, where texts are kept."""


def read_exchanges(
    exchanges: Iterable[Exchange],
    tape: Tape,
    requests: LoadRequests,
    difference: ClockDifference,
    origin: float,
    *,
    keep_answers: bool = False,
    may_be_shorter: bool = False,
) -> tuple[list[Record], Floats]:
    """The records of a process's exchanges, and how long each piece waited to be read, in ms."""
    records, exchanges = [], list(exchanges)
    ends = np.cumsum([len(exchange.read_at) for exchange in exchanges], dtype=np.int64)
    read_at = np.concatenate([np.empty(0), *(np.asarray(exchange.read_at) for exchange in exchanges)])
    arrivals = difference.arrivals(b"".join(exchange.stamps for exchange in exchanges), read_at)
    unread_ms = 1000 * (read_at - arrivals)
    start = 0
    for exchange, end in zip(exchanges, ends.tolist(), strict=True):
        pieces = slice(start, end)
        start = end
        decoded = decode(exchange.raw(tape), np.cumsum(exchange.sizes, dtype=np.int64))
        if requests.key is not None:
            stars = b"*" * len(requests.key)  # every other byte stays at its place
            decoded = replace(decoded, body=decoded.body.replace(requests.key.encode(), stars))
            exchange.error = exchange.error and without_key(exchange.error, requests.key)
        record = _record(
            exchange,
            decoded,
            requests,
            arrivals[pieces],
            unread_ms[pieces],
            origin,
            keep_answers=keep_answers,
            may_be_shorter=may_be_shorter,
        )
        records.append(record)
    return records, unread_ms


def _record(
    exchange: Exchange,
    decoded: Decoded,
    requests: LoadRequests,
    arrivals: Floats,
    unread_ms: Floats,
    origin: float,
    *,
    keep_answers: bool,
    may_be_shorter: bool,
) -> Record:
    status = None if exchange.head is None else exchange.head.status
    output_tokens = int(requests.output_tokens[exchange.index])
    most_events = _EVENTS + _EVENTS_PER_TOKEN * output_tokens
    answer = read_answer(decoded.body, arrivals, decoded.ends, most_events) if status == 200 else StreamedAnswer()
    error = exchange.error
    if error is None and (decoded.error or not decoded.complete):
        error = f"broken_http: {decoded.error or 'the framing ends before the answer does'}"
    times = answer.token_times
    assert exchange.ended_at is not None
    ended_at = float(arrivals[-1]) if exchange.complete else exchange.ended_at
    return Record(
        request=exchange.index,
        scheduled_s=requests.scheduled_s[exchange.index],
        started_s=exchange.started_at - origin,
        sent_s=None if exchange.sent_at is None else exchange.sent_at - origin,
        first_token_s=float(times[0]) - origin if len(times) else None,
        last_token_s=float(times[-1]) - origin if len(times) else None,
        end_s=ended_at - origin,
        input_tokens=answer.input_tokens,
        cached_tokens=answer.cached_tokens,
        output_tokens=answer.output_tokens,
        chunks=len(times),
        gaps_ms=(1000 * np.diff(times)).astype(np.float32),
        unread_ms=float(unread_ms.max()) if len(unread_ms) else None,
        finish_reason=answer.finish_reason,
        http_status=status,
        error=_error(error, status, decoded.body, answer, output_tokens, may_be_shorter=may_be_shorter),
        text=text_of(decoded.body) if keep_answers and status == 200 else None,
    )


def _error(
    error: str | None,
    status: int | None,
    body: bytes,
    answer: StreamedAnswer,
    output_tokens: int,
    *,
    may_be_shorter: bool,
) -> str | None:
    """Why the request failed: the earliest cause; None for a success."""
    # After `[DONE]` a server may end its answer by closing the connection.
    if error is not None and not (answer.done and error.startswith(("closed_early", "broken_http"))):
        return answer.error or error
    if status != 200:
        return f"http_error: {status} {excerpt(body)}".rstrip()
    if answer.error:
        return answer.error
    if not answer.done:
        return "no_done: the answer ended without [DONE]"
    if answer.output_tokens is None:
        return "no_usage: the server sent no usage, so the output length cannot be checked"
    if answer.output_tokens > output_tokens or (answer.output_tokens < output_tokens and not may_be_shorter):
        return f"output_length: {answer.output_tokens} tokens instead of {output_tokens}"
    return None


def make_table(plan: LoadPlan, requests: LoadRequests, records: list[Record]) -> pa.Table:
    """The records as a table of `schemas.RUN_REQUESTS`, in order of arrival."""
    records = sorted(records, key=lambda record: record.request)
    rows = np.array([record.request for record in records], dtype=np.int64)
    index = requests.index[rows]
    columns: dict[str, Any] = {
        "round": np.full(len(rows), plan.round, dtype=np.int32),
        "request_index": index,
        "phase": ["settle" if position < plan.settle_requests else "measured" for position in index.tolist()],
        "turn": [requests.turn[request] for request in rows.tolist()],
        "scheduled_s": [
            requests.scheduled_s[record.request] if record.scheduled_s is None else record.scheduled_s
            for record in records
        ],
        "input_tokens_asked": requests.input_tokens[rows],
        "output_tokens_asked": requests.output_tokens[rows],
        "chunk_gaps_ms": _lists([record.gaps_ms for record in records]),
    }
    arrays = []
    for column in schemas.RUN_REQUESTS:
        values = columns.get(column.name)
        if values is None:
            values = [getattr(record, column.name) for record in records]
        arrays.append(values if isinstance(values, pa.Array) else pa.array(values, type=column.type))
    return pa.Table.from_arrays(arrays, schema=schemas.RUN_REQUESTS)


def make_answers(plan: LoadPlan, requests: LoadRequests, records: list[Record]) -> pa.Table:
    """What was asked and answered as a table of `schemas.RUN_ANSWERS`, in the order of the requests."""
    asked = read_asked(plan)
    rows = [
        {
            "request_index": int(requests.index[record.request]),
            **asked[int(requests.index[record.request])],
            "text": record.text if record.error is None else None,
            "output_tokens": record.output_tokens,
            "finish_reason": record.finish_reason,
            "error": record.error,
        }
        for record in sorted(records, key=lambda record: int(requests.index[record.request]))
    ]
    return pa.Table.from_pylist(rows, schema=schemas.RUN_ANSWERS)


def _lists(values: list[npt.NDArray[np.float32] | None]) -> pa.ListArray:
    arrays = [np.empty(0, dtype=np.float32) if value is None else value for value in values]
    offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate([np.empty(0, np.float32), *arrays])))
