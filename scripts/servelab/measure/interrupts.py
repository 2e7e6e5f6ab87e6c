"""Turns signals and the end of the workflow or the parent process into one `Outage` in the main thread.

`SERVELAB_COORDINATOR_PID` holds the pid of the workflow that asked for the run. When the workflow or this process's
parent ends, nobody waits for the result, and the accelerator must be released.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from servelab.core.errors import ConfigError, Outage

COORDINATOR = "SERVELAB_COORDINATOR_PID"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def outage_on_interrupt() -> Iterator[None]:
    """Raises `Outage` inside the block at the first signal or lost process; later ones do not disturb the clean-up."""
    lost: list[str] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Outage(lost[0] if lost else f"interrupted by {signal.Signals(number).name}")

    def watch(watched: dict[int, str]) -> None:
        ended, _, _ = select.select(list(watched), [], [])
        lost.append(f"{watched[ended[0]]} is gone")
        os.kill(os.getpid(), signal.SIGTERM)

    for each in _SIGNALS:
        signal.signal(each, interrupt)
    if watched := _watched():
        threading.Thread(target=watch, args=(watched,), daemon=True).start()
    yield


def _watched() -> dict[int, str]:
    """Descriptor of each process to watch → its name; the descriptor is readable when the process has ended."""
    watched = {}
    parent = os.getppid()
    if parent > 1:  # process 1 never ends, and 0 means a parent outside this container
        watched[_pidfd(parent, "the process that started this run")] = "the process that started this run"
    if coordinator := os.environ.get(COORDINATOR):
        if not coordinator.isdigit():
            raise ConfigError(f"{COORDINATOR} must be a process id, not {coordinator!r}")
        watched[_pidfd(int(coordinator), "the workflow")] = "the workflow"
    return watched


def _pidfd(pid: int, name: str) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise Outage(f"{name} is gone") from None
