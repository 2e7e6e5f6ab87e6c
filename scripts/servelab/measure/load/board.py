"""Shared by the client's processes while they send: one clock, counts of requests, a queue of requests.

All times are of the system's monotonic clock. The kernel stamps a packet with the real-time clock. NTP adjusts the
speed of both clocks alike, so the two differ by a constant unless somebody sets the real-time clock. The difference is
measured ten times a second, to about a microsecond. A piece that arrives between two measurements that disagree gets
the time at which it was read instead.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Sequence
from multiprocessing.sharedctypes import Synchronized

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

clock = time.monotonic
"""Seconds; the same for all processes of a system."""

_SET_NS = 200_000
"""If two measurements differ by more than this, the real-time clock was set in between."""
_TRIES = 5


class ClockDifference:
    """Real-time clock minus monotonic clock, measured from time to time."""

    def __init__(self) -> None:
        self._at: list[float] = []
        self._difference_ns: list[int] = []

    def measure(self) -> None:
        """Measures the difference: the best of a few tries, because the process may be interrupted during one."""
        best_ns, difference_ns = 1 << 62, 0
        for _ in range(_TRIES):
            before = time.monotonic_ns()
            real = time.time_ns()
            after = time.monotonic_ns()
            if after - before < best_ns:
                best_ns, difference_ns = after - before, real - (before + after) // 2
            if best_ns < 1000:
                break
        self._at.append(clock())
        self._difference_ns.append(difference_ns)

    def arrivals(self, stamps: bytes | bytearray, read_at: Sequence[float] | Floats) -> Floats:
        """When pieces arrived, in seconds of `clock`.

        `stamps` holds the kernel's `struct timespec` for each piece, 16 bytes, all zero if it gave none. `read_at` is
        when each piece was read; it is used if there is no valid stamp.
        """
        read = np.asarray(read_at, dtype=np.float64)
        seconds, nanoseconds = np.frombuffer(stamps, dtype=np.int64).reshape(-1, 2).T
        differences = np.asarray(self._difference_ns, dtype=np.int64)
        after = np.searchsorted(np.asarray(self._at), read).clip(0, len(differences) - 1)
        before = (after - 1).clip(0)
        known = (seconds != 0) & (np.abs(differences[after] - differences[before]) < _SET_NS)
        arrived = (seconds * 1_000_000_000 + nanoseconds - differences[before]) * 1e-9
        return np.where(known, np.minimum(arrived, read), read)


_COUNTS = 3


class Board:
    """Shared memory, created before the processes fork. Each process writes only its own row, so there is no lock."""

    def __init__(self, processes: int, servers: int = 1) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * (1 + _COUNTS * processes))).cast("q")
        self._sent = memoryview(mmap.mmap(-1, 8 * processes * servers)).cast("q")
        self._servers = servers

    def write(self, process: int, in_flight: int, done: int, failed: int) -> None:
        """Replaces a process's counts."""
        start = 1 + _COUNTS * process
        self._cells[start], self._cells[start + 1], self._cells[start + 2] = in_flight, done, failed

    def in_flight(self) -> int:
        """Requests in flight."""
        return sum(self._cells[1::_COUNTS])

    def count(self, process: int, server: int, change: int) -> None:
        """Changes how many requests of a process are in flight on a server."""
        self._sent[process * self._servers + server] += change

    def in_flight_on(self, server: int) -> int:
        """Requests in flight on a server."""
        return sum(self._sent[server :: self._servers])

    def totals(self) -> tuple[int, int, int]:
        """Requests in flight, done and failed of all processes."""
        in_flight, done, failed = (sum(self._cells[1 + count :: _COUNTS]) for count in range(_COUNTS))
        return in_flight, done, failed

    def saturate(self) -> None:
        """Asks all processes to end the round."""
        self._cells[0] = 1

    @property
    def saturated(self) -> bool:
        """Whether a process has called `saturate`."""
        return bool(self._cells[0])


class RequestQueue:
    """Positions of requests, in order of arrival: of one process, or of all that share a counter."""

    def __init__(self, positions: Sequence[int], shared: Synchronized[int] | None = None) -> None:
        """`shared` counts the positions taken by all processes; it is created before they fork."""
        self._positions, self._shared, self._taken = positions, shared, 0

    def take(self) -> int | None:
        """The next position; None if there is none."""
        if self._shared is not None:
            with self._shared.get_lock():
                self._taken = self._shared.value
                self._shared.value += 1
        taken = self._taken
        self._taken += 1
        return self._positions[taken] if taken < len(self._positions) else None

    def close(self) -> None:
        """Ends the queue: nothing more can be taken."""
        self._positions = ()


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
        in_flight, done, failed = self._board.totals()
        line = f"{now - self._started_at:.1f} s: {done} of {self._requests} requests, {in_flight} in flight"
        print(f"{line}, {failed} failed", file=sys.stderr, flush=True)
