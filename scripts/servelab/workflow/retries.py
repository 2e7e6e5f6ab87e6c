"""What the next job of a run asks of Slurm, by the cause of the last one's end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from servelab.core.errors import Outage
from servelab.machine.allocations.slurm import QueuedJob, queue, refusal

Request = Mapping[str, str | int]
"""Resources by Snakemake's names."""
_MEMORY = re.compile(r"\boom\b|oom[-_]kill|out of memory|job memory limit|too little host memory", re.IGNORECASE)
_OF_THE_NODE = ("FAILED", "NODE_FAIL", "BOOT_FAIL")
"""States of jobs that may succeed on another node."""
_RUNNING = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING")


class Retries:
    """The requests of this workflow's jobs: one that was lost asks for more memory, or for another node.

    More memory only if the job ran out of it. Either only if Slurm would take the request, else the same again.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is where the workflow runs."""
        self._folder = folder
        self._asked: dict[tuple[str, int], Request] = {}

    def known(self, run: str, attempt: int) -> Request | None:
        """What an attempt asks for, if that was asked before."""
        return self._asked.get((run, attempt))

    def request(self, run: str, attempt: int, usual: Request) -> Request:
        """What an attempt asks for, counted from 1; `usual` is what the first one does."""
        before = self._asked.get((run, attempt - 1))
        found = usual if before is None else self._after_loss(run, usual, before)
        self._asked[run, attempt] = found
        return found

    def _after_loss(self, run: str, usual: Request, before: Request) -> Request:
        same = {**usual, **{name: before[name] for name in ("mem_mb", "slurm_extra") if name in before}}
        job = self._last_job(run)
        changed = dict(same)
        if job is None:
            return same
        if self._ran_out_of_memory(run, job):
            if "mem_mb" in usual:
                changed["mem_mb"] = int(same["mem_mb"]) + int(usual["mem_mb"])
        elif job.state in _OF_THE_NODE and job.node:
            changed["slurm_extra"] = f"{same.get('slurm_extra', '')} --exclude={job.node}".strip()
        return same if changed == same or refusal(changed) else changed

    def _last_job(self, run: str) -> QueuedJob | None:
        with suppress(Outage):
            ended = [
                job
                for job in queue(self._folder, "--states=all")
                if job.comment.endswith(f"_{run}") and job.state not in _RUNNING
            ]
            return ended[-1] if ended else None
        return None

    def _ran_out_of_memory(self, run: str, job: QueuedJob) -> bool:
        logs = [*self._folder.glob(f".snakemake/slurm_logs/*/{run}/{job.id}.log")]
        logs += [*self._folder.glob(f"results/logs/measure/{run}.log")]
        said = "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)
        return job.state == "OUT_OF_MEMORY" or _MEMORY.search(said) is not None
