"""Records of a round: one per exchange, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servelab.core.credentials import without_key
from servelab.core.errors import ServelabError
from servelab.measure.load import LoadPlan
from servelab.measure.load.board import ClockDifference, Floats
from servelab.measure.load.exchange import Exchange
from servelab.measure.load.requests import LoadRequests, read_workload
from servelab.measure.load.stream import StreamedAnswer, excerpt, read_answer
from servelab.metrics.tables import schemas

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
        body = bytes(exchange.body)
        if requests.key is not None:
            body = body.replace(requests.key.encode(), b"*" * len(requests.key))  # every other byte stays at its place
            exchange.error = exchange.error and without_key(exchange.error, requests.key)
        records.append(
            _record(
                exchange,
                body,
                requests,
                arrivals[pieces],
                unread_ms[pieces],
                origin,
                keep_answers=keep_answers,
                may_be_shorter=may_be_shorter,
            )
        )
    return records, unread_ms


def _record(
    exchange: Exchange,
    body: bytes,
    requests: LoadRequests,
    arrivals: Floats,
    unread_ms: Floats,
    origin: float,
    *,
    keep_answers: bool,
    may_be_shorter: bool,
) -> Record:
    status = exchange.status
    output_tokens = int(requests.output_tokens[exchange.index])
    answer = read_answer(body) if status == 200 else StreamedAnswer()
    times = answer.token_times(arrivals, exchange.ends)
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
        error=_error(exchange.error, status, body, answer, output_tokens, may_be_shorter=may_be_shorter),
        text=answer.text if keep_answers and status == 200 else None,
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
    workload = read_workload(plan)
    if missing := sorted(set(schemas.ASKED.names).difference(workload.column_names)):
        raise ServelabError(f"{plan.requests}: not a workload's questions: has no column {missing[0]}")
    asked = workload.select(schemas.ASKED.names).to_pylist()
    rows = [
        {
            "request_index": int(requests.index[record.request]),
            **asked[record.request],
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
