"""CPU pinning: processes that are started run on given CPUs only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pinned(cpus: frozenset[int]) -> Iterator[None]:
    """Pins this thread, and every process it starts inside the block, to these CPUs; an empty set pins nothing."""
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
