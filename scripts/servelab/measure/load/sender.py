"""Sends a plan's requests and returns a record of each, failed ones included; from several processes if one core is too
few, with one clock and one limit on concurrency.

The parent prepares the requests and forks, so that they are in memory once. With `max_concurrency` the slots are split
and each process takes the next request from one queue; without it, requests are assigned in turn. Each process returns
its records through a pipe. If a process dies, the round ends with an error; if the parent dies, its children exit.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow.parquet as pq

from servelab.core import cli
from servelab.core.errors import ConfigError, Outage
from servelab.measure.load import LoadPlan, LoadResult, LoadStats
from servelab.measure.load.board import Board, Floats, LoadProgress, RequestQueue, clock
from servelab.measure.load.loop import Loop
from servelab.measure.load.records import Record, make_answers, make_table, new_record, read_exchanges
from servelab.measure.load.requests import LoadRequests, prepare

Child = tuple[BaseProcess, Connection]

_LOOK_S = 0.1
_HEAD_START_S = 0.01
"""Time between announcing the start and the start itself, so that every process learns of it in time."""
_OTHER_FILES = 64
"""Open files in addition to the requests in flight."""


@dataclass(frozen=True)
class ProcessResult:
    """The result of one process."""

    records: list[Record]
    unread_ms: Floats
    cpu_s: float


def send_load(plan: LoadPlan) -> LoadResult:
    """Sends a plan's requests.

    Requests that were not sent because `duration_s` was over have no row; `requests_not_sent` counts them. Raises
    `ServelabError` before the first request if the plan cannot be sent, `Outage` if a load process dies.
    """
    requests = prepare(plan)
    processes = max(1, min(plan.processes, len(requests.first), plan.max_concurrency or plan.processes))
    _allow_open_files(plan, len(requests), processes)
    board = Board(processes, len(plan.addresses))
    progress = LoadProgress(board, len(requests))
    # A garbage collection would pause every stream at once; nothing here needs one.
    gc.collect()
    gc.disable()
    try:
        if processes == 1:
            origin, result = _send_alone(plan, requests, board, progress)
            results = [result]
        else:
            origin, results = _send_shared(plan, requests, board, progress, processes)
    finally:
        gc.enable()
    progress.show(last=True)
    records = [record for result in results for record in result.records]
    wall_s = max((record["end_s"] for record in records), default=0.0)
    unsent = _unsent(plan, requests, records, board.saturated, wall_s)
    stats = LoadStats(
        processes=processes,
        origin_monotonic_s=origin,
        wall_s=wall_s,
        cpu_s=sum(result.cpu_s for result in results),
        unread_p99_ms=_p99(results),
        tokens_counted=sum(record.get("is_counted", False) for record in records),
        without_done=sum(record["error"] is None and not record.get("is_done", True) for record in records),
        requests_not_sent=len(requests) - len(records) - len(unsent),
        saturated=board.saturated,
    )
    everything = records + unsent
    return LoadResult(make_table(everything), stats, make_answers(plan, everything) if plan.keep_answers else None)


def _send_alone(
    plan: LoadPlan, requests: LoadRequests, board: Board, progress: LoadProgress
) -> tuple[float, ProcessResult]:
    """Sends the round from this process; returns its start on `clock` and its result."""
    loop = Loop(plan, requests, RequestQueue(requests.first), plan.max_concurrency, board, on_tick=progress.show)
    origin = clock()
    progress.start(origin)
    loop.run(origin)
    return origin, _result(plan, loop, requests, origin)


def _send_shared(
    plan: LoadPlan, requests: LoadRequests, board: Board, progress: LoadProgress, processes: int
) -> tuple[float, list[ProcessResult]]:
    """The same from several processes; `Outage` naming the one that died."""
    context = multiprocessing.get_context("fork")
    taken = context.Value("q", 0)
    children: list[Child] = []
    try:
        for number in range(processes):
            if plan.max_concurrency is None:
                queue, slots = RequestQueue(requests.first[number::processes]), None
            else:
                queue, slots = RequestQueue(requests.first, taken), (plan.max_concurrency + number) // processes
            ours, theirs = context.Pipe()
            others = [ours, *(connection for _, connection in children)]
            child: BaseProcess = context.Process(
                target=_child, args=(plan, requests, queue, slots, board, number, theirs, others), daemon=True
            )
            child.start()
            theirs.close()
            children.append((child, ours))
        for started, connection in children:
            _receive(started, connection, children)  # ready
        origin = clock() + _HEAD_START_S
        progress.start(origin)
        for _, connection in children:
            with suppress(OSError):  # of a process that died meanwhile: the next look names it
                connection.send(origin)
        results: list[ProcessResult] = []
        waiting = {connection: started for started, connection in children}
        while waiting:
            for ready in wait(list(waiting), _LOOK_S):
                assert isinstance(ready, Connection)
                results.append(_receive(waiting.pop(ready), ready, children))
            progress.show()
        return origin, results
    finally:
        for started, _ in children:
            if started.is_alive():
                started.kill()
            started.join()


def _receive(child: BaseProcess, connection: Connection, children: Sequence[Child]) -> ProcessResult:
    try:
        received: ProcessResult = connection.recv()
    except (EOFError, OSError):
        child.join()
        number = [process for process, _ in children].index(child) + 1
        raise Outage(
            f"load process {number} of {len(children)} (pid {child.pid}) died: exit code {child.exitcode}"
        ) from None
    return received


def _child(
    plan: LoadPlan,
    requests: LoadRequests,
    queue: RequestQueue,
    slots: int | None,
    board: Board,
    number: int,
    connection: Connection,
    others: Sequence[Connection],
) -> NoReturn:
    """A child process: waits for the start, sends its requests and returns its result."""
    for other in others:
        other.close()  # only the parent may hold them open, so that children notice its death
    loop = Loop(plan, requests, queue, slots, board, number, parent=connection.fileno())
    connection.send(None)
    try:
        origin = connection.recv()
        loop.run(origin)
        connection.send(_result(plan, loop, requests, origin))
    except (EOFError, BrokenPipeError):
        os._exit(1)
    os._exit(0)


def _result(plan: LoadPlan, loop: Loop, requests: LoadRequests, origin: float) -> ProcessResult:
    records, unread_ms = read_exchanges(plan, loop.exchanges, requests, loop.difference, origin)
    return ProcessResult(records, unread_ms, loop.cpu_s)


def _allow_open_files(plan: LoadPlan, requests: int, processes: int) -> None:
    """Raises the limit on open files to the system's maximum, one per request in flight; `ConfigError` if too low."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    in_flight = min(requests, plan.max_concurrency or (requests if plan.request_rate == "inf" else 1))
    needed = -(-in_flight // processes) + _OTHER_FILES
    if most != resource.RLIM_INFINITY and needed > most:
        raise ConfigError(
            f"{in_flight} requests in flight need {needed} open files per process, the system allows {most}: "
            "raise `ulimit -Hn`, lower `max_concurrency` or use more `client_processes`"
        )


def _unsent(
    plan: LoadPlan, requests: LoadRequests, records: list[Record], saturated: bool, ended_s: float
) -> list[Record]:
    """Records of requests that were due but not sent."""
    if saturated:
        error = f"saturated: not sent, {plan.saturation_in_flight} requests were in flight"
    else:
        error = "round_timeout: not sent in time"
    started = {record["position"]: record["error"] for record in records}
    if plan.duration_s is not None and not saturated and plan.duration_s <= plan.timeout_s:
        return []
    unsent: list[Record] = []
    for request in range(len(requests)):
        if request not in started:
            is_later = requests.conversations is not None and requests.conversations.is_later(request)
            started[request] = "turn_before: the turn before failed" if is_later and started[request - 1] else error
            unsent.append(new_record(plan, requests, request) | {"end_s": ended_s, "error": started[request]})
    return unsent


def _p99(results: list[ProcessResult]) -> float | None:
    unread_ms = np.concatenate([result.unread_ms for result in results])
    return float(np.percentile(unread_ms, 99)) if len(unread_ms) else None


def main() -> None:
    """Reads a `LoadPlan` from the first file, and writes records and statistics into the folder."""
    plan_file, output = map(Path, sys.argv[1:])
    sent = send_load(LoadPlan.model_validate_json(plan_file.read_bytes()))
    pq.write_table(sent.records, output / "requests.parquet")
    if sent.answers is not None:
        pq.write_table(sent.answers, output / "answers.parquet")
    (output / "stats.json").write_text(sent.stats.model_dump_json(indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cli.run(main, without_pandas=True)
