"""Prepares all requests of a round, with their times, before the first is sent."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.credentials import key_of
from servelab.core.errors import ServelabError
from servelab.measure.load import LoadPlan
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_arrow

Message = dict[str, Any]


class ConversationTurns:
    """Which request follows which. A load process asks it for the next turn when one is answered."""

    def __init__(
        self,
        turns: Sequence[int | None],
        think_s: Sequence[float | None],
        opening: Callable[[int], list[Message]],
        encode: Callable[[int, list[Message] | None], bytes],
    ) -> None:
        """Turn and pause of each position among the requests, as `schemas.TURNS` has them.

        `opening` gives the messages that a position has of its own; `encode` the bytes that send them for it.
        """
        self._turns, self._think_s, self._opening, self._encode = turns, think_s, opening, encode
        self.first = [position for position in range(len(turns)) if not self.is_later(position)]
        """Positions that arrive by themselves."""
        self._said: dict[int, list[Message]] = {}
        """Messages of the last turn that was sent, by its position; a first turn has those of its opening."""

    def is_later(self, position: int) -> bool:
        """Whether the request follows the one before it."""
        return bool(self._turns[position])

    def after(self, position: int, answer: str) -> tuple[int, float, bytes] | None:
        """The turn that follows an answer: its position, the pause in seconds, its bytes; None after the last turn."""
        said = self._said.pop(position, None)
        if position + 1 == len(self._turns) or not self.is_later(position + 1):
            return None
        said = self._opening(position) if said is None else said
        messages = [*said, {"role": "assistant", "content": answer}, *self._opening(position + 1)]
        self._said[position + 1] = messages
        return position + 1, self._think_s[position + 1] or 0.0, self._encode(position + 1, messages)


def arrival_times(plan: LoadPlan, count: int, recorded_s: Sequence[float] | None = None) -> list[float]:
    """Seconds from the start of the round, ascending, the first 0.

    A finite rate gives a renewal process of that mean rate: `poisson` (exponential gaps), `constant`, or `gamma` gaps
    of shape `burstiness`, as in `vllm bench serve`. With `ramp_up_s` T the rate is r·t/T until T: gaps are drawn in
    expected requests, Λ(t) = r·t²/2T until T, then r·(t − T/2), and the inverse of Λ turns them into seconds. Rate
    `inf` gives 0; with `ramp_up_s` it spreads the first requests (as many as may be in flight) evenly over it and sends
    the others at its end. `replay` gives `recorded_s`. Every round gets the same times, so that rounds differ only by
    the server. `ValueError` if `replay` has no recorded times.
    """
    if plan.arrivals == "replay":
        if recorded_s is None or len(recorded_s) != count:
            raise ValueError("`arrivals: replay` needs the time of each request")
        return [time - recorded_s[0] for time in recorded_s]
    if plan.request_rate == "inf":
        first = min(plan.max_concurrency or count, count)
        return [plan.ramp_up_s * min(index / first, 1.0) for index in range(count)]
    gap = _gaps(plan)
    expected, times = 0.0, []
    for _ in range(count):
        times.append(_time_of(expected, plan.request_rate, plan.ramp_up_s))
        expected += gap()
    return times


def _gaps(plan: LoadPlan) -> Callable[[], float]:
    """A function that draws gaps of mean 1."""
    draw = random.Random(plan.seed)  # noqa: S311 (arrival times, no secret)
    if plan.arrivals == "constant":
        return lambda: 1.0
    if plan.arrivals == "gamma":
        return lambda: draw.gammavariate(plan.burstiness, 1 / plan.burstiness)
    return lambda: draw.expovariate(1.0)


def _time_of(expected: float, rate: float, ramp_up_s: float) -> float:
    """Seconds after which `expected` requests are expected: the inverse of Λ in `arrival_times`."""
    if expected < rate * ramp_up_s / 2:
        return math.sqrt(2 * ramp_up_s * expected / rate)
    return expected / rate + ramp_up_s / 2


_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass(frozen=True)
class LoadRequests:
    """A plan's requests in order of arrival, as columns."""

    index: npt.NDArray[np.int32]
    """Position in the workload."""
    scheduled_s: list[float]
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    messages: list[bytes]
    """Head and body of each HTTP request, as bytes for the socket; empty for a later turn until it is due."""
    turn: list[int | None]
    """Turn of its conversation; None for a request of its own."""
    conversations: ConversationTurns | None = None
    """None if each request is one of its own."""
    key: str | None = None
    """The server's API key; never to be written, so an answer that repeats it is changed."""

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def first(self) -> Sequence[int]:
        """Positions of the requests that arrive by themselves."""
        return range(len(self)) if self.conversations is None else self.conversations.first


def prepare(plan: LoadPlan) -> LoadRequests:
    """The plan's requests; `ServelabError` if the workload's file does not have them."""
    table = _read(plan)
    index = table["request_index"].to_numpy()
    of_phase = np.array([phase == plan.phase for phase in table["phase"].to_pylist()], dtype=bool)
    rows = np.flatnonzero(of_phase)
    rows = rows[np.argsort(index[rows], kind="stable")][: plan.limit]
    if not len(rows):
        raise ServelabError(f"{plan.requests}: has no request of phase `{plan.phase}`")
    recorded_s = None
    if plan.arrivals == "replay":
        recorded_s = table["arrival_s"].to_numpy().astype(np.float64)[rows]
        if np.isnan(recorded_s).any():
            raise ServelabError(f"{plan.requests}: has no arrival times, which `arrivals: replay` needs")
        order = np.argsort(recorded_s, kind="stable")
        rows, recorded_s = rows[order], recorded_s[order]
    turn, think_s = (_column(table, name, rows) for name in ("turn", "think_s"))
    encode = _encoder(plan, table, rows)
    conversations = None
    if any(turn):
        conversations = ConversationTurns(turn, think_s, _opener(table, rows), encode)
    arrived = conversations.first if conversations else range(len(rows))
    times = arrival_times(plan, len(arrived), None if recorded_s is None else recorded_s.tolist())
    scheduled_s = [0.0] * len(rows)
    for position, time in zip(arrived, times, strict=True):
        scheduled_s[position] = time
    for position in range(len(rows)):
        if conversations and conversations.is_later(position):  # until the turn before is answered
            scheduled_s[position] = scheduled_s[position - 1]
    messages = [b""] * len(rows)
    for position in arrived:
        messages[position] = encode(position, None)
    return LoadRequests(
        index=index[rows],
        scheduled_s=scheduled_s,
        input_tokens=table["input_tokens"].to_numpy()[rows],
        output_tokens=table["output_tokens"].to_numpy()[rows],
        messages=messages,
        turn=turn,
        conversations=conversations,
        key=key_of(plan.api_key_env),
    )


def _read(plan: LoadPlan) -> pa.Table:
    """Columns of `schemas.WORKLOAD_REQUESTS`, and those of `schemas.TURNS` if the file has them."""
    try:
        # No threads: they cost memory and start-up time, and the process may fork.
        with pq.ParquetFile(plan.requests, pre_buffer=False) as file:
            more = [field for field in schemas.TURNS if field.name in file.schema_arrow.names]
            schema = pa.schema([*schemas.WORKLOAD_REQUESTS, *more])
            table = file.read(columns=schema.names, use_threads=False)
        return table.cast(schema).combine_chunks()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ServelabError(f"{plan.requests}: not a workload's requests: {error}") from error


def read_asked(plan: LoadPlan) -> dict[int, dict[str, Any]]:
    """Columns of `schemas.ASKED` of each request by its index; `ServelabError` if the workload has no questions."""
    try:
        columns = ["request_index", "phase", *schemas.ASKED.names]
        rows = read_arrow(plan.requests, columns).to_pylist()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ServelabError(f"{plan.requests}: not a workload's questions: {error}") from error
    return {
        row["request_index"]: {name: row[name] for name in schemas.ASKED.names}
        for row in rows
        if row["phase"] == plan.phase
    }


def _column(table: pa.Table, name: str, rows: npt.NDArray[np.int64]) -> list[Any]:
    """Values of a column of `schemas.TURNS`; None in each row if the workload has no such column."""
    return table[name].take(rows).to_pylist() if name in table.column_names else [None] * len(rows)


def _opener(table: pa.Table, rows: npt.NDArray[np.int64]) -> Callable[[int], list[Message]]:
    """A function that gives the messages of the request at a position, without those of turns before it."""
    prompts, earlier = table["prompt"], _column(table, "earlier", rows)

    def opening(position: int) -> list[Message]:
        said: list[Message] = orjson.loads(earlier[position] or "[]")
        return [*said, {"role": "user", "content": prompts[int(rows[position])].as_py()}]

    return opening


def _encoder(
    plan: LoadPlan, table: pa.Table, rows: npt.NDArray[np.int64]
) -> Callable[[int, list[Message] | None], bytes]:
    """A function that gives the bytes of the request at a position; with messages, those in place of its own."""
    texts = table["prompt"]
    ids = table["prompt_token_ids"].chunk(0)
    values, offsets = ids.values.to_numpy(zero_copy_only=False), ids.offsets.to_numpy()
    output_tokens = table["output_tokens"].to_numpy()
    asked = read_asked(plan) if plan.keep_answers else {}
    index = table["request_index"].to_numpy()
    opening = _opener(table, rows)
    authorization = f"Authorization: Bearer {key}\r\n" if (key := key_of(plan.api_key_env)) else ""
    # One connection per request, if not asked otherwise: where old connections are dropped, nothing is sent twice.
    connection = "" if plan.keep_alive else "Connection: close\r\n"
    head = (
        f"POST {_PATHS[plan.endpoint]} HTTP/1.1\r\n"
        f"Host: {urlsplit(plan.base_url).netloc}\r\n"
        "Content-Type: application/json\r\n"
        "Accept: text/event-stream\r\n"
        f"{connection}{authorization}"
        "Content-Length: "
    ).encode()

    def prompt(position: int, messages: list[Message] | None) -> dict[str, Any]:
        row = int(rows[position])
        text = texts[row].as_py()
        if plan.endpoint == "completions":
            return {"prompt": values[offsets[row] : offsets[row + 1]] if text is None else text}
        if text is None:
            raise ServelabError(f"{plan.requests}: has token ids, which the chat endpoint does not take")
        return {"messages": opening(position) if messages is None else messages}

    def encode(position: int, messages: list[Message] | None) -> bytes:
        row = int(rows[position])
        content = {
            "model": plan.model,
            **prompt(position, messages),
            "max_tokens": output_tokens[row],
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **plan.body,
        }
        if stop := asked.get(int(index[row]), {}).get("stop"):
            content["stop"] = stop
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        return b"%b%d\r\n\r\n%b" % (head, len(body), body)

    return encode
