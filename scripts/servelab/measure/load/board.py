"""Counts that the client's processes share while they send: requests in flight, done and failed; whether to stop."""

from __future__ import annotations

import mmap
from dataclasses import dataclass

_CELLS = 4


@dataclass(frozen=True)
class Totals:
    """Counts of one process, or of all together."""

    in_flight: int
    done: int
    failed: int
    tokens: int


class Board:
    """Shared memory, created before the processes fork. Each process writes only its own row, so there is no lock."""

    def __init__(self, processes: int) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * (1 + _CELLS * processes))).cast("q")

    def write(self, process: int, totals: Totals) -> None:
        """Replaces a process's counts."""
        start = 1 + _CELLS * process
        self._cells[start + 1], self._cells[start + 2], self._cells[start + 3] = (
            totals.done,
            totals.failed,
            totals.tokens,
        )
        self._cells[start] = totals.in_flight

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
