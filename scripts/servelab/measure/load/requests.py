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

from servelab.core.errors import ServelabError
from servelab.engines.endpoint import api_url, sent_headers
from servelab.measure.load import LoadPlan
from servelab.metrics.tables import schemas

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


_CALLS = {"chat": "chat/completions", "completions": "completions"}


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
    keys: Sequence[str] = ()
    """Values of headers with keys; never to be written, so an answer that repeats one is changed."""

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def first(self) -> Sequence[int]:
        """Positions of the requests that arrive by themselves."""
        return range(len(self)) if self.conversations is None else self.conversations.first


def prepare(plan: LoadPlan) -> LoadRequests:
    """The plan's requests; `ServelabError` if the workload's file does not have them."""
    table = read_workload(plan)
    count = len(table)
    recorded_s = table["arrival_s"].to_pylist() if plan.arrivals == "replay" else None
    turn, think_s = _column(table, "turn"), _column(table, "think_s")
    encode = _encoder(plan, table)
    conversations = ConversationTurns(turn, think_s, _opener(table), encode) if any(turn) else None
    arrived = conversations.first if conversations else range(count)
    scheduled_s = [0.0] * count
    for position, time in zip(arrived, arrival_times(plan, len(arrived), recorded_s), strict=True):
        scheduled_s[position] = time
    messages = [b""] * count
    for position in range(count):
        if conversations and conversations.is_later(position):  # until the turn before is answered
            scheduled_s[position] = scheduled_s[position - 1]
        else:
            messages[position] = encode(position, None)
    return LoadRequests(
        index=table["request_index"].to_numpy(),
        scheduled_s=scheduled_s,
        input_tokens=table["input_tokens"].to_numpy(),
        output_tokens=table["output_tokens"].to_numpy(),
        messages=messages,
        turn=turn,
        conversations=conversations,
        keys=[value.removeprefix("Bearer ") for value in _headers(plan).values()],
    )


def _headers(plan: LoadPlan) -> dict[str, str]:
    return sent_headers(plan.api_key_env, plan.header_env)


def read_workload(plan: LoadPlan) -> pa.Table:
    """The plan's rows of its workload, in order of arrival; `ServelabError` if the file does not have them.

    Columns are those of `schemas.WORKLOAD_REQUESTS`, and those of `schemas.TURNS` and `schemas.ASKED` that it has.
    """
    try:
        # No threads: they cost memory and start-up time, and the process may fork.
        with pq.ParquetFile(plan.requests, pre_buffer=False) as file:
            known = {field.name: field for field in [*schemas.WORKLOAD_REQUESTS, *schemas.TURNS, *schemas.ASKED]}
            there = [
                name for name in known if name in file.schema_arrow.names or name in schemas.WORKLOAD_REQUESTS.names
            ]
            table = file.read(columns=there, use_threads=False).cast(pa.schema([known[name] for name in there]))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ServelabError(f"{plan.requests}: not a workload's requests: {error}") from error
    index = table["request_index"].to_numpy()
    rows = np.flatnonzero([phase == plan.phase for phase in table["phase"].to_pylist()])
    rows = rows[np.argsort(index[rows], kind="stable")][: plan.limit]
    if not len(rows):
        raise ServelabError(f"{plan.requests}: has no request of phase `{plan.phase}`")
    if plan.arrivals == "replay":
        arrival_s = table["arrival_s"].to_numpy().astype(np.float64)[rows]
        if np.isnan(arrival_s).any():
            raise ServelabError(f"{plan.requests}: has no arrival times, which `arrivals: replay` needs")
        rows = rows[np.argsort(arrival_s, kind="stable")]
    return table.take(pa.array(rows)).combine_chunks()


def _column(table: pa.Table, name: str) -> list[Any]:
    """Values of a column; None in each row if the workload has no such column."""
    return table[name].to_pylist() if name in table.column_names else [None] * len(table)


def _opener(table: pa.Table) -> Callable[[int], list[Message]]:
    """A function that gives the messages of the request at a position, without those of turns before it."""
    prompts, earlier = table["prompt"], _column(table, "earlier")

    def opening(position: int) -> list[Message]:
        said: list[Message] = orjson.loads(earlier[position] or "[]")
        return [*said, {"role": "user", "content": prompts[position].as_py()}]

    return opening


def _encoder(plan: LoadPlan, table: pa.Table) -> Callable[[int, list[Message] | None], bytes]:
    """A function that gives the bytes of the request at a position; with messages, those in place of its own."""
    texts = table["prompt"]
    ids = table["prompt_token_ids"].chunk(0)
    values, offsets = ids.values.to_numpy(zero_copy_only=False), ids.offsets.to_numpy()
    output_tokens = table["output_tokens"].to_numpy()
    stops = _column(table, "stop") if plan.keep_answers else None
    opening = _opener(table)
    more = "".join(f"{name}: {value}\r\n" for name, value in _headers(plan).items())
    length = "max_completion_tokens" if "max_completion_tokens" in plan.body else "max_tokens"
    url = urlsplit(api_url(plan.base_url, _CALLS[plan.endpoint]))
    head = (
        f"POST {url.path}{url.query and f'?{url.query}'} HTTP/1.1\r\n"
        f"Host: {url.netloc}\r\n"
        "Content-Type: application/json\r\n"
        "Accept: text/event-stream\r\n"
        # One connection for each request: where old connections are dropped, nothing is sent twice.
        f"Connection: close\r\n{more}"
        "Content-Length: "
    ).encode()

    def prompt(position: int, messages: list[Message] | None) -> dict[str, Any]:
        text = texts[position].as_py()
        if plan.endpoint == "completions":
            return {"prompt": values[offsets[position] : offsets[position + 1]] if text is None else text}
        if text is None:
            raise ServelabError(f"{plan.requests}: has token ids, which the chat endpoint does not take")
        return {"messages": opening(position) if messages is None else messages}

    def encode(position: int, messages: list[Message] | None) -> bytes:
        content = {
            "model": plan.model,
            **prompt(position, messages),
            length: output_tokens[position],
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **plan.body,
        }
        content[length] = output_tokens[position]
        if stops and stops[position]:
            content["stop"] = stops[position]
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        return b"%b%d\r\n\r\n%b" % (head, len(body), body)

    return encode
