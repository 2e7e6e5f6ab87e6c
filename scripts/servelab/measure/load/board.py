"""What the client's processes share while they send: counts of requests, whether to stop, and a queue of requests."""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from servelab.measure.load.clock import clock

_CELLS = 3


@dataclass(frozen=True)
class Totals:
    """Counts of one process, or of all together."""

    in_flight: int
    done: int
    failed: int


class Board:
    """Shared memory, created before the processes fork. Each process writes only its own row, so there is no lock."""

    def __init__(self, processes: int) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * (1 + _CELLS * processes))).cast("q")

    def write(self, process: int, totals: Totals) -> None:
        """Replaces a process's counts."""
        start = 1 + _CELLS * process
        self._cells[start], self._cells[start + 1] = totals.in_flight, totals.done
        self._cells[start + 2] = totals.failed

    def set_in_flight(self, process: int, count: int) -> None:
        """Replaces a process's requests in flight at once: the limit of `saturation_in_flight` depends on it."""
        self._cells[1 + _CELLS * process] = count

    def in_flight(self) -> int:
        """Requests in flight."""
        return sum(self._cells[1::_CELLS])

    def totals(self) -> Totals:
        """Sums over the processes."""
        return Totals(*(sum(self._cells[1 + cell :: _CELLS]) for cell in range(_CELLS)))

    def saturate(self) -> None:
        """Asks all processes to end the round."""
        self._cells[0] = 1

    @property
    def saturated(self) -> bool:
        """Whether a process has called `saturate`."""
        return bool(self._cells[0])


_INDEX = struct.Struct("=I")


class RequestQueue(Protocol):
    """Positions of requests, in order of arrival."""

    ended: bool
    """Whether no more will follow."""

    def take(self) -> int | None:
        """The next position; None if there is none, or none yet."""
        ...

    def close(self) -> None:
        """Ends the queue: nothing more can be taken."""
        ...


class OwnQueue:
    """Requests that belong to one process from the start."""

    def __init__(self, indexes: Iterable[int]) -> None:
        self._indexes: Iterator[int] = iter(indexes)
        self.ended = False

    def take(self) -> int | None:
        """See `RequestQueue.take`."""
        index = None if self.ended else next(self._indexes, None)
        self.ended = index is None
        return index

    def close(self) -> None:
        """See `RequestQueue.close`."""
        self.ended = True


class SharedQueue:
    """Requests that go to any process with a free slot: a pipe, whose reads the kernel keeps apart.

    Created before the processes fork. The parent fills it and closes it when everything is in. A process that dies
    loses only the request that it has taken.
    """

    def __init__(self, indexes: Iterable[int]) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._left = memoryview(b"".join(map(_INDEX.pack, indexes)))
        self.ended = False

    def fill(self) -> None:
        """Parent: writes as much as the pipe accepts."""
        if self.ended:
            return
        try:
            while self._left:
                # 512 bytes hold whole numbers only, and the kernel writes up to PIPE_BUF bytes atomically.
                self._left = self._left[os.write(self._writing, self._left[:512]) :]
        except BlockingIOError:
            return
        os.close(self._writing)
        self.ended = True

    def open_for_taking(self) -> None:
        """Child: closes its copy of the writing end, so that only the parent decides when the pipe ends."""
        os.close(self._writing)

    def take(self) -> int | None:
        """See `RequestQueue.take`."""
        if self.ended:
            return None
        try:
            data = os.read(self._reading, _INDEX.size)
        except BlockingIOError:
            return None
        self.ended = not data
        return int(_INDEX.unpack(data)[0]) if data else None

    def close(self) -> None:
        """See `RequestQueue.close`."""
        self.ended = True


_INTERVAL_S = 10.0


class LoadProgress:
    """Prints how far the round is, every 10 s."""

    def __init__(self, board: Board, requests: int) -> None:
        self._board, self._requests = board, requests
        self._started_at = self._printed_at = clock()

    def start(self, origin: float) -> None:
        """Sets the start of the round."""
        self._started_at = self._printed_at = origin

    def show(self, *, last: bool = False) -> None:
        """Writes a line if one is due; always writes the last one."""
        now = clock()
        if now - self._printed_at < _INTERVAL_S and not last:
            return
        self._printed_at = now
        totals = self._board.totals()
        done = f"{now - self._started_at:.1f} s: {totals.done} of {self._requests} requests"
        print(f"{done}, {totals.in_flight} in flight, {totals.failed} failed", file=sys.stderr, flush=True)
