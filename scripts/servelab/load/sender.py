"""Sends a plan's requests and gives a record of each, whatever happens to it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
from typing import Any

import pyarrow as pa

from servelab import schemas
from servelab.load.connection import Connection, clock
from servelab.load.plan import LoadPlan
from servelab.load.requests import Request, prepare
from servelab.load.stream import Answer, excerpt, read_answer

ERRORS = {
    "connect_failed": "No connection could be made.",
    "closed_early": "The connection ended before the answer did.",
    "broken_http": "The answer is not HTTP.",
    "http_error": "A status other than 200; the server's message follows.",
    "server_error": "An error event within the stream; its message follows.",
    "broken_event": "An event that is not what the OpenAI API defines.",
    "no_done": "The answer ended without `[DONE]`.",
    "no_usage": "The server sent no usage, so the output length cannot be checked.",
    "output_length": "Another output length than asked for.",
    "request_timeout": "Unfinished after the plan's `request_timeout_s`.",
    "round_timeout": "Unfinished, or not yet sent, after the plan's `timeout_s`.",
}
"""First word of a record's `error`, before a colon, and what it means."""


def run_load(plan: LoadPlan) -> pa.Table:
    """Carries out a plan; returns `schemas.RUN_REQUESTS`, a row for each request, in order of arrival.

    Raises `ServelabError` only before the first request, if the plan's requests cannot be read.
    """
    requests = prepare(plan)
    connections = [Connection(request.message) for request in requests]
    _allow_open_files()
    # A collection would stop the clock of every stream at once; nothing here needs one.
    gc.collect()
    gc.disable()
    try:
        origin = asyncio.run(_send_all(plan, requests, connections))
    finally:
        gc.enable()
    rows = [_record(plan, *pair, origin) for pair in zip(requests, connections, strict=True)]
    return pa.Table.from_pylist(rows, schema=schemas.RUN_REQUESTS)


def _allow_open_files() -> None:
    """Each request in flight is an open file: take as many as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _send_all(plan: LoadPlan, requests: list[Request], connections: list[Connection]) -> float:
    """Sends every request at its time, as far as `max_concurrency` lets it; returns the clock at the start."""
    slots = asyncio.Semaphore(plan.max_concurrency or max(1, len(requests)))
    origin = clock()
    deadline = origin + plan.timeout_s
    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout_at(deadline):
            for request, connection in zip(requests, connections, strict=True):
                await asyncio.sleep(origin + request.scheduled_s - clock())
                await slots.acquire()
                task = asyncio.create_task(_send(plan, connection, deadline))
                task.add_done_callback(lambda _: slots.release())
                tasks.append(task)
    except TimeoutError:
        for connection in connections[len(tasks) :]:
            connection.fail("round_timeout: not sent in time")
    await asyncio.gather(*tasks)
    return origin


async def _send(plan: LoadPlan, connection: Connection, deadline: float) -> None:
    own_deadline = clock() + plan.request_timeout_s
    try:
        async with asyncio.timeout_at(min(deadline, own_deadline)):
            await asyncio.get_running_loop().create_connection(lambda: connection, *plan.address)
            await connection.ended.wait()
    except TimeoutError:
        if own_deadline < deadline:
            connection.fail(f"request_timeout: unfinished after {plan.request_timeout_s:g} s")
        else:
            connection.fail(f"round_timeout: the round took longer than {plan.timeout_s:g} s")
    except OSError as error:
        connection.fail(f"connect_failed: {error}")


def _record(plan: LoadPlan, request: Request, connection: Connection, origin: float) -> dict[str, Any]:
    if connection.http_status == 200:
        answer = read_answer(bytes(connection.body), connection.stamps, connection.offsets)
    else:
        answer = Answer()
    times = answer.token_times
    assert connection.ended_at is not None
    return {
        "round": plan.round,
        "request_index": request.index,
        "phase": "settle" if request.index < plan.settle_requests else "measured",
        "scheduled_s": request.scheduled_s,
        "sent_s": None if connection.sent_at is None else connection.sent_at - origin,
        "first_token_s": times[0] - origin if times else None,
        "last_token_s": times[-1] - origin if times else None,
        "end_s": connection.ended_at - origin,
        "input_tokens_asked": request.input_tokens,
        "input_tokens": answer.input_tokens,
        "cached_tokens": answer.cached_tokens,
        "output_tokens_asked": request.output_tokens,
        "output_tokens": answer.output_tokens,
        "chunks": len(times),
        "chunk_gaps_ms": [1000 * (after - before) for before, after in itertools.pairwise(times)],
        "finish_reason": answer.finish_reason,
        "http_status": connection.http_status,
        "error": _error(request, connection, answer),
    }


def _error(request: Request, connection: Connection, answer: Answer) -> str | None:
    """Why the request failed, the first cause first; None for a success."""
    if connection.error is not None and not (answer.done and connection.error.startswith("closed_early")):
        # A server that ends its answer by closing the connection is heard out once `[DONE]` is there.
        return answer.error or connection.error
    if connection.http_status != 200:
        return f"http_error: {connection.http_status} {excerpt(bytes(connection.body))}".rstrip()
    if answer.error:
        return answer.error
    if not answer.done:
        return "no_done: the answer ended without [DONE]"
    if answer.output_tokens is None:
        return "no_usage: the server sent no usage, so the output length cannot be checked"
    if answer.output_tokens != request.output_tokens:
        return f"output_length: {answer.output_tokens} tokens instead of {request.output_tokens}"
    return None
