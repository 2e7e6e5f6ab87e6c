"""Ends a batch job's workflow process whose job is gone: Slurm cannot, on a node that it has given up."""

from __future__ import annotations

import os
import threading
import time

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
