"""One clock for all times: the system's monotonic clock. The kernel's arrival stamps are converted to it.

The kernel stamps a packet with the real-time clock. NTP adjusts the speed of both clocks alike, so the two differ by a
constant unless somebody sets the real-time clock. The difference is measured ten times a second, to about a
microsecond. A piece that arrives between two measurements that disagree gets the time at which it was read instead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

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


_BITS = 22
BLOCK_BYTES = 1 << _BITS
"""A place on the tape is `block * BLOCK_BYTES + offset`; a piece never crosses blocks."""


class Tape:
    """Blocks of memory that are filled one after the other."""

    def __init__(self) -> None:
        self._views: list[memoryview] = []

    def add_block(self) -> tuple[int, bytearray]:
        """A new block and its place."""
        block = bytearray(BLOCK_BYTES)
        self._views.append(memoryview(block))
        return (len(self._views) - 1) * BLOCK_BYTES, block

    def join(self, places: Sequence[int], sizes: Sequence[int]) -> bytes:
        """The pieces, joined."""
        views, parts = self._views, []
        for place, size in zip(places, sizes, strict=True):
            offset = place & (BLOCK_BYTES - 1)
            parts.append(views[place >> _BITS][offset : offset + size])
        return b"".join(parts)
