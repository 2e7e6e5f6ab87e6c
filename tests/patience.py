"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60.0
Found = TypeVar("Found")


def rest_after(began: float, least_s: float) -> None:
    """Sleeps five times as long as a look took: looks at all processes would take a core from who is waited for."""
    time.sleep(max(least_s, 5 * (time.monotonic() - began)))


def until(condition: Callable[[], Found], what: str, patience_s: float = PATIENCE_S) -> Found:
    """What the condition gives once it is true; `what` says in a failure what was waited for."""
    end = time.monotonic() + patience_s
    while (began := time.monotonic()) < end:
        if found := condition():
            return found
        rest_after(began, 0.02)
    raise AssertionError(f"not within {patience_s} s: {what}")
