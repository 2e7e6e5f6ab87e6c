"""Progress of a transfer: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import NoReturn

from tqdm import tqdm

LOG_INTERVAL_S = 15.0


class Progress:
    """Counts bytes towards `total_bytes`, of which `done_bytes` are there already."""

    def __init__(self, name: str, total_bytes: int, done_bytes: int) -> None:
        self._name, self._total_bytes, self._done_bytes = name, total_bytes, done_bytes
        self._next_line_at = time.monotonic()
        self._bar: tqdm[NoReturn] | None = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=total_bytes, initial=done_bytes, desc=name, unit="B", unit_scale=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, size_bytes: int) -> None:
        """Adds bytes that have been written."""
        self._done_bytes += size_bytes
        if self._bar is not None:
            self._bar.update(size_bytes)
        elif time.monotonic() >= self._next_line_at or self._done_bytes == self._total_bytes:
            self._next_line_at = time.monotonic() + LOG_INTERVAL_S
            percent = 100 * self._done_bytes / self._total_bytes
            megabytes = f"{self._done_bytes / 1e6:.1f} of {self._total_bytes / 1e6:.1f} MB"
            print(f"{self._name}: {megabytes} ({percent:.0f} %)", file=sys.stderr, flush=True)
