"""The start and the end of a workflow: claims on studies, jobs an earlier one left."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from servelab.core.errors import ServelabError
from servelab.core.result_lock import claim
from servelab.machine.allocations.slurm import cancel_jobs


def claim_studies(searches: Iterable[str], results: Path) -> None:
    """Keeps other workflows from making these studies until this process ends; `ServelabError` if one does already."""
    claims = ExitStack()
    atexit.register(claims.close)
    for search in searches:
        try:
            claims.enter_context(claim(results / search, wait=False))
        except ServelabError as error:
            raise ServelabError(f"{search}: {error}; wait for it, or ask for other studies") from None


def cancel_left_jobs(project: Path) -> list[str]:
    """Cancels jobs that a workflow which was killed left in Slurm's queue; returns a line for each.

    They would measure what is submitted again now. No other workflow of this folder runs: Snakemake has locked it.
    """
    if not (project / ".snakemake/slurm_logs").exists():
        return []
    return [f"cancelled job {job.id} of an earlier workflow: {job.name}" for job in cancel_jobs(project)]


def hang_up_as_terminated() -> None:
    """Lets a terminal that closes end the workflow as SIGTERM does; one that `nohup` started goes on."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))


_EVERY_S = 5.0


def end_with_parent() -> None:
    """From now on this process ends within seconds of its parent, the job's script.

    Snakemake may not end by itself: its handler of SIGTERM takes a lock that its main thread may have at that moment,
    and both then wait without end.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY_S)
    os._exit(1)
