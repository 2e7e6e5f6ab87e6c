"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60.0
Found = TypeVar("Found")


def until(condition: Callable[[], Found], what: str, patience_s: float = PATIENCE_S) -> Found:
    """What the condition gives once it is true; `what` says in a failure what was waited for."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {patience_s} s: {what}")
