"""What the client sends: every request written out, and when, before the first is sent."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servelab import schemas
from servelab.errors import ServelabError
from servelab.load.plan import LoadPlan

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass(frozen=True)
class Request:
    """One request, ready to be written to a socket."""

    index: int
    scheduled_s: float
    input_tokens: int
    output_tokens: int
    message: bytes
    """Head and body of the HTTP request."""


def prepare(plan: LoadPlan) -> list[Request]:
    """The plan's requests in order of arrival; `ServelabError` if the workload's file cannot give them."""
    rows = _rows(plan)
    arrivals = arrival_times(len(rows), plan.request_rate, plan.seed)
    return [
        Request(
            index=row["request_index"],
            scheduled_s=arrival,
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            message=_message(plan, row),
        )
        for row, arrival in zip(rows, arrivals, strict=True)
    ]


def arrival_times(count: int, rate: float | Literal["inf"], seed: int) -> list[float]:
    """Seconds from the start of the round, ascending, the first 0: a Poisson process of `rate` requests per second.

    All 0 for `inf`. The same for every round, so that rounds differ in nothing but the server.
    """
    if rate == "inf":
        return [0.0] * count
    draw = random.Random(seed)  # noqa: S311 (arrival times, no secret)
    times: list[float] = []
    for _ in range(count):
        times.append(times[-1] + draw.expovariate(rate) if times else 0.0)
    return times


def _rows(plan: LoadPlan) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(plan.requests, columns=schemas.WORKLOAD_REQUESTS.names)
        table = table.cast(schemas.WORKLOAD_REQUESTS)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ServelabError(f"{plan.requests}: not a workload's requests: {error}") from error
    table = table.filter(pc.equal(table["phase"], plan.phase)).sort_by("request_index")
    if not len(table):
        raise ServelabError(f"{plan.requests}: holds no request of phase `{plan.phase}`")
    rows: list[dict[str, Any]] = table.slice(0, plan.limit).to_pylist()
    return rows


def _message(plan: LoadPlan, row: dict[str, Any]) -> bytes:
    body = orjson.dumps(
        {
            "model": plan.model,
            **_prompt(plan, row),
            "max_tokens": row["output_tokens"],
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **plan.body,
        }
    )
    # A connection of its own for each request: a server that drops idle or old connections then fails none.
    head = (
        f"POST {_PATHS[plan.endpoint]} HTTP/1.1\r\n"
        f"Host: {urlsplit(plan.base_url).netloc}\r\n"
        "Content-Type: application/json\r\n"
        "Accept: text/event-stream\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _prompt(plan: LoadPlan, row: dict[str, Any]) -> dict[str, Any]:
    text, token_ids = row["prompt"], row["prompt_token_ids"]
    if plan.endpoint == "completions":
        return {"prompt": token_ids if text is None else text}
    if text is None:
        raise ServelabError(f"{plan.requests}: has token ids, which the chat endpoint does not take")
    return {"messages": [{"role": "user", "content": text}]}
