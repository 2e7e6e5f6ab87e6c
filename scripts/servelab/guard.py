"""Guard: turns signals, a lost coordinator and a lost parent into one `Outage` in the main thread.

The coordinator is the workflow that asked for the run: its pid is in `SERVELAB_COORDINATOR_PID`. When it or this
process's parent is gone, nobody waits for the result, and an accelerator must not be held for it.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from servelab.errors import ConfigError, Outage

COORDINATOR = "SERVELAB_COORDINATOR_PID"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def guarded() -> Iterator[None]:
    """Raises `Outage` inside the block at the first signal or loss; later ones do not disturb the cleaning up."""
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
    """A descriptor for each process to watch, readable when it has ended."""
    watched = {}
    parent = os.getppid()
    if parent > 1:  # 1 never ends, and 0 is outside this container
        watched[_pidfd(parent, "the process that started this run")] = "the process that started this run"
    if coordinator := os.environ.get(COORDINATOR):
        if not coordinator.isdigit():
            raise ConfigError(f"{COORDINATOR} is a process id, not {coordinator!r}")
        watched[_pidfd(int(coordinator), "the workflow")] = "the workflow"
    return watched


def _pidfd(pid: int, name: str) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise Outage(f"{name} is gone") from None
