"""The start and the end of a workflow: claims on studies, lines of progress, jobs an earlier one left."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from servelab.core.errors import ServelabError
from servelab.core.result_lock import claim
from servelab.machine.allocations.slurm import cancel_jobs
from servelab.search.progress import StudyProgress
from servelab.study.study import Study


class ProgressHandler(logging.Handler):
    """Follows Snakemake's own events, wherever its jobs run, and logs a line when a job has measured its runs.

    `runs_of` gives the runs that a measuring job is about to measure; `measuring` is the name of their rule.
    """

    def __init__(
        self,
        studies: Iterable[Study],
        results: Path,
        runs_of: Callable[[str], list[str]],
        logger: logging.Logger,
        measuring: str = "measure",
    ) -> None:
        super().__init__()
        self._studies = [StudyProgress(study, results) for study in studies]
        self._runs_of, self._logger, self._measuring_rule = runs_of, logger, measuring
        self._measuring: dict[int, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Takes note of a job that starts or has finished."""
        event: dict[str, Any] = vars(record)
        if event.get("event") == "job_info" and event["rule_name"] == self._measuring_rule:
            self._measuring[event["jobid"]] = self._runs_of(event["wildcards"]["run_id"])
        elif event.get("event") == "job_finished" and event["job_id"] in self._measuring:
            measured = self._measuring.pop(event["job_id"])
            for study in self._studies:
                for stage in study.stages_of(measured):
                    self._logger.info(study.stage(stage).line())


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
    return [f"cancelled job {job.id} of an earlier workflow: {job.comment}" for job in cancel_jobs(project)]


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
