"""The result of a round: answers as servers stream them (events of the OpenAI API), and a record per request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from servelab.core.credentials import without_credentials, without_keys
from servelab.core.errors import ServelabError
from servelab.measure.load import LoadPlan
from servelab.measure.load.board import ClockDifference, Floats
from servelab.measure.load.connections import Exchange
from servelab.measure.load.requests import LoadRequests, read_workload
from servelab.metrics.tables import schemas

MOST_CHARACTERS = 1 << 16
"""Characters of an answer that are kept."""
_DONE = b"[DONE]"
_LINE_END = rb"(?:\r\n|\n|\r(?!\n))"
_EVENT_END = re.compile(_LINE_END * 2)
"""An empty line; a proxy's own events may end their lines otherwise than the server's."""
_REASONED, _SAID = ("reasoning_content", "reasoning"), ("content", "text", "refusal")
"""Fields of a piece that hold text."""
_CALLS = ("tool_calls", "function_call")
"""Fields of a piece that hold tokens which are no text of the answer."""
_EXCERPT = 300
_MOST_TOKENS = 1 << 31
_MOST_REASON = 64
"""Characters of a finish reason."""


@dataclass
class StreamedAnswer:
    """Content of a streamed answer."""

    token_ends: list[int] = field(default_factory=list)
    """Bytes of the body up to the end of each event that carries a token."""
    text: str = ""
    """At most `MOST_CHARACTERS` of the text; the reasoning of a piece comes before what it answers."""
    said: str = ""
    """The same without reasoning: what the next turn of a conversation repeats."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    hidden_tokens: int | None = None
    """Output tokens that no event carries: reasoning that the server counts and does not stream."""
    finish_reason: str | None = None
    done: bool = False
    """Whether the closing `[DONE]` arrived."""
    error: str | None = None

    def token_times(
        self, stamps: Sequence[float] | npt.NDArray[Any], ends: Sequence[int] | npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Arrival of each event that carries a token; the body's bytes up to `ends[i]` had arrived at `stamps[i]`."""
        pieces = np.searchsorted(np.asarray(ends, dtype=np.int64), np.asarray(self.token_ends, dtype=np.int64))
        return np.asarray(stamps, dtype=np.float64)[pieces]


def read_answer(body: bytes) -> StreamedAnswer:
    """The answer in a body of server-sent events. Reading stops at an event that cannot be read; `error` says so."""
    answer = StreamedAnswer()
    text: list[str] = []
    said: list[str] = []
    start = 0
    for end in _EVENT_END.finditer(body):  # no complete event follows the last
        block, start = body[start : end.start()], end.end()
        if (data := _data(block)) is None:
            continue
        if data == _DONE:
            answer.done = True
            break
        try:
            event = orjson.loads(data)
            if event.get("error"):
                answer.error = f"server_error: {excerpt(data)}"
                break
            if choices := event.get("choices"):
                if _carries_token(choices, answer):
                    answer.token_ends.append(start)
                piece = choices[0].get("delta", choices[0])
                text += _texts(piece, _REASONED + _SAID)
                said += _texts(piece, _SAID)
            if usage := event.get("usage"):
                _read_usage(usage, answer)
        except (orjson.JSONDecodeError, AttributeError, LookupError, TypeError):
            answer.error = f"broken_event: {excerpt(data)}"
            break
    if answer.hidden_tokens and len("".join(text)) > len("".join(said)):  # its reasoning is streamed too
        answer.hidden_tokens = 0
    answer.text, answer.said = ("".join(parts)[:MOST_CHARACTERS] for parts in (text, said))
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
    if block.startswith(b"data:") and b"\n" not in block and b"\r" not in block:
        return block[5:].removeprefix(b" ")
    data = [line[5:].removeprefix(b" ") for line in block.splitlines() if line.startswith(b"data:")]
    return b"\n".join(data) if data else None


def _texts(piece: dict[str, Any], fields: Sequence[str]) -> list[str]:
    return [text for name in fields if isinstance(text := piece.get(name), str)]


def _carries_token(choices: list[dict[str, Any]], answer: StreamedAnswer) -> bool:
    """Whether an event has text or part of a call, or empty text that is no start or end; notes the finish reason."""
    carries = False
    for choice in choices:
        piece, reason = choice.get("delta", choice), choice.get("finish_reason")
        if reason is not None and (not isinstance(reason, str) or len(reason) > _MOST_REASON):
            raise TypeError
        answer.finish_reason = reason or answer.finish_reason
        texts = [piece.get(name) for name in _REASONED + _SAID + _CALLS]
        carries |= any(texts) or ("" in texts and not piece.get("role") and not reason)
    return carries


def _read_usage(usage: dict[str, Any], answer: StreamedAnswer) -> None:
    answer.input_tokens = _count(usage["prompt_tokens"])
    answer.output_tokens = _count(usage["completion_tokens"])
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    answer.cached_tokens = None if cached is None else _count(cached)
    reasoned = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
    answer.hidden_tokens = None if reasoned is None else min(_count(reasoned), answer.output_tokens)


def _count(value: Any) -> int:
    """A number of tokens; `TypeError` for anything else, which no table could hold."""
    if type(value) is not int or not 0 <= value < _MOST_TOKENS:
        raise TypeError
    return value


Record = dict[str, Any]
"""A request's row of `schemas.RUN_REQUESTS`, with `position` among the plan's requests, `text` of a kept answer, and
`is_counted` if its tokens were counted here, as the server sent no usage."""


def read_exchanges(
    plan: LoadPlan, exchanges: Iterable[Exchange], requests: LoadRequests, difference: ClockDifference, origin: float
) -> tuple[list[Record], Floats]:
    """The records of a process's exchanges, and how long each piece waited to be read, in ms."""
    records, exchanges = [], list(exchanges)
    ends = np.cumsum([len(exchange.read_at) for exchange in exchanges], dtype=np.int64)
    read_at = np.concatenate([np.empty(0), *(np.asarray(exchange.read_at) for exchange in exchanges)])
    arrivals = difference.arrivals(b"".join(exchange.stamps for exchange in exchanges), read_at)
    unread_ms = 1000 * (read_at - arrivals)
    start = 0
    for exchange, end in zip(exchanges, ends.tolist(), strict=True):
        body = bytes(exchange.body)
        for key in requests.keys:
            body = body.replace(key.encode(), b"*" * len(key))  # every other byte stays at its place
        exchange.error = exchange.error and without_keys(exchange.error, requests.keys)
        record = _answered(plan, exchange, body, requests, arrivals[start:end], origin)
        record["unread_ms"] = float(unread_ms[start:end].max()) if end > start else None
        records.append(record)
        start = end
    return records, unread_ms


def new_record(plan: LoadPlan, requests: LoadRequests, position: int) -> Record:
    """The facts of a request before it is sent."""
    index = int(requests.index[position])
    return {
        "position": position,
        "round": plan.round,
        "request_index": index,
        "phase": "settle" if index < plan.settle_requests else "measured",
        "turn": requests.turn[position],
        "scheduled_s": requests.scheduled_s[position],
        "input_tokens_asked": int(requests.input_tokens[position]),
        "output_tokens_asked": int(requests.output_tokens[position]),
        "chunks": 0,
        "chunk_gaps_ms": (),
    }


def _answered(
    plan: LoadPlan, exchange: Exchange, body: bytes, requests: LoadRequests, arrivals: Floats, origin: float
) -> Record:
    """A request's record; times are seconds since the start of the round."""
    answer = read_answer(body) if exchange.status == 200 else StreamedAnswer()
    is_counted = answer.done and answer.output_tokens is None and (count := _counter(plan.tokenizer)) is not None
    if is_counted and count:
        answer.input_tokens, answer.output_tokens = count(_asked(requests.messages[exchange.index])), count(answer.text)
    times = answer.token_times(arrivals, exchange.ends)
    assert exchange.ended_at is not None
    ended_at = float(arrivals[-1]) if exchange.complete else exchange.ended_at
    record = new_record(plan, requests, exchange.index)
    return record | {
        "started_s": exchange.started_at - origin,
        "sent_s": None if exchange.sent_at is None else exchange.sent_at - origin,
        "first_token_s": float(times[0]) - origin if len(times) else None,
        "last_token_s": float(times[-1]) - origin if len(times) else None,
        "end_s": ended_at - origin,
        "input_tokens": answer.input_tokens,
        "cached_tokens": answer.cached_tokens,
        "output_tokens": answer.output_tokens,
        "hidden_tokens": answer.hidden_tokens,
        "chunks": len(times),
        "chunk_gaps_ms": (1000 * np.diff(times)).astype(np.float32),
        "finish_reason": answer.finish_reason,
        "http_status": exchange.status,
        "error": error_of(exchange, body, answer, None if is_counted else record["output_tokens_asked"], plan),
        "text": answer.text if plan.keep_answers and exchange.status == 200 else None,
        "is_counted": is_counted,
        "is_done": answer.done,
    }


@cache
def _counter(tokenizer: Path | None) -> Callable[[str], int] | None:
    """A function that counts the tokens of a text; None without a tokenizer that can be read."""
    if tokenizer is None:
        return None
    from tokenizers import Tokenizer  # here: only a server without usage needs it

    try:
        read = Tokenizer.from_file(str(tokenizer))
    except Exception:  # of its own kind
        return None
    return lambda text: len(read.encode(text, add_special_tokens=False).ids)


def _asked(message: bytes) -> str:
    """The text of a request, without what a chat template adds."""
    body = orjson.loads(message.partition(b"\r\n\r\n")[2] or b"{}")
    texts = [body.get("prompt"), *(each.get("content") for each in body.get("messages", []))]
    return "".join(text for text in texts if isinstance(text, str))


def error_of(exchange: Exchange, body: bytes, answer: StreamedAnswer, asked: int | None, plan: LoadPlan) -> str | None:
    """Why a request failed: the earliest cause; None for a success.

    `asked` is its output length, None if its text was counted: tokens of a text need not be those that were generated.
    """
    # After `[DONE]` a server may end its answer by closing the connection.
    if exchange.error and not (answer.done and exchange.error.startswith(("closed_early", "broken_http"))):
        return answer.error or exchange.error
    if exchange.status != 200:
        moved = f" redirects to {excerpt(exchange.location)}" if exchange.location else ""
        return f"http_error: {exchange.status}{moved} {excerpt(body)}".rstrip()
    if answer.error:
        return answer.error
    if not answer.done and not (answer.finish_reason and answer.output_tokens is not None):
        if body.startswith(b"\x1f\x8b"):
            return "no_stream: the answer is compressed with gzip, which nobody asked for"
        if body.lstrip()[:1] in (b"{", b"["):
            return f"no_stream: the answer is JSON, not a stream: {excerpt(body)}"
        return "no_done: the answer ended without [DONE]"
    if answer.output_tokens is None:
        return "no_usage: the server sent no usage, so the output length cannot be checked"
    if asked is None:
        return None
    may_be_shorter = plan.keep_answers or plan.natural_stops
    if answer.output_tokens > asked or (answer.output_tokens < asked and not may_be_shorter):
        return f"output_length: {answer.output_tokens} tokens instead of {asked}"
    return None


def make_table(records: Sequence[Record]) -> pa.Table:
    """The records as a table of `schemas.RUN_REQUESTS`, in order of arrival."""
    records = sorted(records, key=lambda record: record["position"])
    columns = [
        pa.array([record.get(column.name) for record in records], column.type) for column in schemas.RUN_REQUESTS
    ]
    return pa.Table.from_arrays(columns, schema=schemas.RUN_REQUESTS)


def make_answers(plan: LoadPlan, records: Sequence[Record]) -> pa.Table:
    """Questions and answers as a table of `schemas.RUN_ANSWERS`, in the order of the requests."""
    workload = read_workload(plan)
    if missing := sorted(set(schemas.ASKED.names).difference(workload.column_names)):
        raise ServelabError(f"{plan.requests}: not a workload's questions: has no column {missing[0]}")
    asked = workload.select(schemas.ASKED.names).to_pylist()
    rows = [
        {**record, **asked[record["position"]], "text": None if record["error"] else record.get("text")}
        for record in sorted(records, key=lambda record: record["request_index"])
    ]
    return pa.Table.from_pylist(rows, schema=schemas.RUN_ANSWERS)
