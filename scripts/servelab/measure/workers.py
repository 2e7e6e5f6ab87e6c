"""Watches a server's worker processes, without which it cannot serve.

Some engines do not notice that a worker was killed, for example by the kernel when memory ran out: the main process
runs on, reports that it is healthy, and no request ever ends. Such an engine names its workers
(`Engine.worker_names`).
"""

from __future__ import annotations

import contextlib
import re
import time

import psutil


class Workers:
    """The workers of one running server."""

    def __init__(self, names: re.Pattern[str] | None, pid: int) -> None:
        """`pid` is the server's main process."""
        self._names, self._pid = names, pid
        self._seen: dict[psutil.Process, str] = {}
        self._lost_at: float | None = None
        self._look()

    def lost(self) -> tuple[str, float] | None:
        """A worker that has ended although the server runs, and seconds since that was noticed; None if none has."""
        self._look()
        gone = [name for worker, name in self._seen.items() if not _lives(worker)]
        if not gone:
            return None
        self._lost_at = self._lost_at or time.monotonic()
        return gone[0], time.monotonic() - self._lost_at

    def _look(self) -> None:
        """Adds new workers, also orphaned ones: these are children of the process that started the server."""
        if (names := self._names) is None:
            return
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(psutil.Process(self._pid).ppid()).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if process not in self._seen and (found := names.search(" ".join(process.cmdline()))):
                        self._seen[process] = found.group()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
