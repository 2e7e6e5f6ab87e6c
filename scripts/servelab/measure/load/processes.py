"""Sends a round from several processes if one core is too few: one clock, one limit on concurrency.

The parent prepares the requests and forks, so that they are in memory once. With `max_concurrency` the slots are split
and each process takes the next request from one queue; without it, requests are assigned in turn. Each process returns
its records through a pipe. If a process dies, the round ends with an error; if the parent dies, its children exit.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from servelab.core.errors import Outage
from servelab.measure.load.board import Board, LoadProgress, OwnQueue, RequestQueue, SharedQueue
from servelab.measure.load.clock import Floats, clock
from servelab.measure.load.loop import Loop
from servelab.measure.load.plan import LoadPlan
from servelab.measure.load.records import Record, read_exchanges
from servelab.measure.load.requests import Requests

Child = tuple[BaseProcess, Connection]

_LOOK_S = 0.1
_HEAD_START_S = 0.01
"""Time between announcing the start and the start itself, so that every process learns of it in time."""


@dataclass(frozen=True)
class Share:
    """What one process returns."""

    records: list[Record]
    unread_ms: Floats
    cpu_s: float
    max_rss_bytes: int
    resent: int


def process_count(plan: LoadPlan, requests: int) -> int:
    """How many processes to use: no more than there is work for."""
    return max(1, min(plan.processes, requests, plan.max_concurrency or requests))


def send_alone(plan: LoadPlan, requests: Requests, board: Board, progress: LoadProgress) -> tuple[float, Share]:
    """Sends the round from this process; returns its start on `clock` and its share."""
    loop = Loop(plan, requests, OwnQueue(requests.first), plan.max_concurrency, board, on_tick=progress.show)
    origin = clock()
    progress.start(origin)
    loop.run(origin)
    return origin, _share(plan, loop, requests, origin)


def send_shared(
    plan: LoadPlan, requests: Requests, board: Board, progress: LoadProgress, processes: int
) -> tuple[float, list[Share]]:
    """The same from several processes; `Outage` naming the one that died."""
    context = multiprocessing.get_context("fork")
    queue = SharedQueue(requests.first) if plan.max_concurrency is not None else None
    children: list[Child] = []
    try:
        for number in range(processes):
            ours, theirs = context.Pipe()
            others = [ours, *(connection for _, connection in children)]
            child: BaseProcess = context.Process(
                target=_child, args=(plan, requests, board, number, processes, queue, theirs, others), daemon=True
            )
            child.start()
            theirs.close()
            children.append((child, ours))
        for started, connection in children:
            _receive(started, connection, children)  # ready
        origin = clock() + _HEAD_START_S
        progress.start(origin)
        for _, connection in children:
            connection.send(origin)
        shares: list[Share] = []
        waiting = {connection: started for started, connection in children}
        while waiting:
            if queue is not None:
                queue.fill()
            for ready in wait(list(waiting), _LOOK_S):
                assert isinstance(ready, Connection)
                shares.append(_receive(waiting.pop(ready), ready, children))
            progress.show()
        return origin, shares
    finally:
        for started, _ in children:
            if started.is_alive():
                started.kill()
            started.join()


def _receive(
    child: BaseProcess,
    connection: Connection,
    children: Sequence[Child],
) -> Share:
    try:
        received: Share = connection.recv()
    except (EOFError, OSError):
        child.join()
        number = [process for process, _ in children].index(child) + 1
        raise Outage(
            f"load process {number} of {len(children)} (pid {child.pid}) died: exit code {child.exitcode}"
        ) from None
    return received


def _child(
    plan: LoadPlan,
    requests: Requests,
    board: Board,
    number: int,
    processes: int,
    shared: SharedQueue | None,
    connection: Connection,
    others: Sequence[Connection],
) -> NoReturn:
    """A child process: waits for the start, sends its requests and returns its share."""
    for other in others:
        other.close()  # only the parent may hold them open, so that children notice its death
    queue: RequestQueue
    slots = None
    if shared is not None:
        assert plan.max_concurrency is not None
        shared.open_for_taking()
        queue, slots = shared, (plan.max_concurrency + number) // processes
    else:
        queue = OwnQueue(requests.first[number::processes])
    loop = Loop(plan, requests, queue, slots, board, number, parent=connection.fileno())
    connection.send(None)
    try:
        origin = connection.recv()
        loop.run(origin)
        connection.send(_share(plan, loop, requests, origin))
    except (EOFError, BrokenPipeError):
        os._exit(1)
    os._exit(0)


def _share(plan: LoadPlan, loop: Loop, requests: Requests, origin: float) -> Share:
    records, unread_ms = read_exchanges(
        loop.exchanges,
        loop.tape,
        requests,
        loop.difference,
        origin,
        keep_answers=plan.keep_answers,
        may_be_shorter=plan.keep_answers or plan.natural_stops,
    )
    return Share(records, unread_ms, loop.cpu_s, max_rss_bytes(), loop.resent)


def max_rss_bytes() -> int:
    """This process's peak memory; `getrusage` would include the process that started it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
