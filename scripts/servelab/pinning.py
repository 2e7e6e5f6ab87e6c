"""Pinning: keeps what is started on given CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pinned(cpus: frozenset[int]) -> Iterator[None]:
    """Keeps this thread, and all that it starts inside the block, on these CPUs; an empty set leaves it free."""
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
