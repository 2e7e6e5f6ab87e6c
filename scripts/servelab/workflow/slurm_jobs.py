"""This workflow's jobs at Slurm: requests that it refuses, jobs that do not start, the next try of a lost one."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.run_spec import HardwareSpec
from servelab.machine.allocations.slurm import QueuedJob, is_final, keys_of, queue, refusal, unsatisfied
from servelab.study.site import Site

FIRST_S, EVERY_S = 30.0, 60.0
"""Time until the queue is looked at for the first time, and between looks: a request to Slurm each."""
_TRIAL_MIN = 10

Request = Mapping[str, str | int]
"""Resources by Snakemake's names."""
_MEMORY = re.compile(r"\boom\b|oom[-_]kill|out of memory|job memory limit|too little host memory", re.IGNORECASE)
_OF_THE_NODE = ("FAILED", "NODE_FAIL", "BOOT_FAIL")
"""States of jobs that may succeed on another node."""
_RUNNING = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING")


def refused(site: Site, file: Path, hardware: Sequence[HardwareSpec]) -> Iterator[tuple[str, str]]:
    """A line and Slurm's reason for each request of the site in `file` that it refuses, for this hardware."""
    for each in hardware:
        key, placement = site.keyed_placement(each)
        if reason := refusal(placement.request(each, _TRIAL_MIN)):
            place = ".".join([key, *([" or ".join(keys)] if (keys := keys_of(reason)) else [])])
            yield f"{file}: {place}: Slurm refuses a run on {each.count} × {each.accelerator}: {reason}", reason


def watch_slurm(
    site: Site, file: Path, hardware: Sequence[HardwareSpec], folder: Path, warn: Callable[[str], None]
) -> None:
    """Warns of requests that Slurm refuses now, and from now on of the folder's jobs that it cannot start.

    `ConfigError` for requests that it will always refuse: their jobs would fail, and be tried again in vain. Nothing is
    cancelled: to wait or to mend the site is the user's choice.
    """
    found = list(refused(site, file, hardware))
    if final := [line for line, reason in found if is_final(reason)]:
        raise ConfigError("\n".join(f"{line}; change it, and start again" for line in final))
    for line, _ in found:
        warn(line)
    threading.Thread(target=_look_again_and_again, args=(folder, warn), daemon=True).start()


def _look_again_and_again(folder: Path, warn: Callable[[str], None]) -> None:
    pause, said = threading.Event(), set[str]()
    pause.wait(FIRST_S)
    while True:
        with suppress(ServelabError):  # Slurm does not answer now
            for job in unsatisfied(folder):
                if job.reason not in said:
                    said.add(job.reason)
                    stays = "It stays queued; Ctrl-C cancels all jobs"
                    warn(f"Slurm does not start job {job.id}: {job.reason}. {stays}")
        pause.wait(EVERY_S)


def name_jobs(executor: Any, title: Callable[[str], str]) -> None:
    """Names each job after its title, candidate first. `executor` is the module of Snakemake's executor.

    It gives all jobs one name, which tells a user nothing, and asks Slurm for this name: here, for all names.
    """
    submit, names = executor.get_submit_command, dict[str, None]()

    def named(job: Any, params: Mapping[str, Any], **others: Any) -> str:
        candidate_first = re.sub(r"([^;:]+): ([^;]+)", r"\2-\1", title(job.wildcards[0]))
        name = re.sub(r"[^\w.+]+", "-", candidate_first, flags=re.ASCII).strip("-")[:200]  # its accounting keeps 255
        names[name] = None
        return str(submit(job, {**params, "run_uuid": name}, **others))

    executor.get_submit_command = named
    by_squeue, by_sacct = executor.query_job_status_squeue, executor.query_job_status_sacct
    executor.query_job_status_squeue = lambda _: by_squeue(",".join(names))
    executor.query_job_status_sacct = lambda _: by_sacct(",".join(names))


class Retries:
    """The requests of this workflow's jobs: one that was lost asks for more memory, or for another node.

    More memory only if the job ran out of it. Either only if Slurm would take the request, else the same again.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is where the workflow runs."""
        self._folder = folder
        self._asked: dict[tuple[str, int], Request] = {}

    def known(self, run: str, attempt: int) -> Request | None:
        """The request of an attempt, if that was asked before."""
        return self._asked.get((run, attempt))

    def request(self, run: str, attempt: int, usual: Request) -> Request:
        """The request of an attempt, counted from 1; `usual` is that of the first one."""
        before = self._asked.get((run, attempt - 1))
        found = usual if before is None else self._after_loss(run, usual, before)
        self._asked[run, attempt] = found
        return found

    def _after_loss(self, run: str, usual: Request, before: Request) -> Request:
        same = {**usual, **{name: before[name] for name in ("mem_mb", "slurm_extra") if name in before}}
        job = self._last_job(run)
        if job is None:
            return same
        changed = dict(same)
        if self._ran_out_of_memory(run, job):
            if "mem_mb" in usual:
                changed["mem_mb"] = int(same["mem_mb"]) + int(usual["mem_mb"])
        elif job.state in _OF_THE_NODE and job.node:
            extra = str(same.get("slurm_extra", ""))  # Slurm takes the last `--exclude` only
            longer = re.sub(r"--exclude=\S+", rf"\g<0>,{job.node}", extra)
            changed["slurm_extra"] = longer if longer != extra else f"{extra} --exclude={job.node}".strip()
        return same if changed == same or refusal(changed) else changed

    def _last_job(self, run: str) -> QueuedJob | None:
        with suppress(Outage):
            jobs = queue(self._folder, "--states=all")
            ended = [job for job in jobs if job.comment.endswith(f"_{run}") and job.state not in _RUNNING]
            return ended[-1] if ended else None
        return None

    def _ran_out_of_memory(self, run: str, job: QueuedJob) -> bool:
        logs = [*self._folder.glob(f".snakemake/slurm_logs/*/{run}/{job.id}.log")]
        logs += [*self._folder.glob(f"results/logs/measure/{run}.log")]
        said = "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)
        return job.state == "OUT_OF_MEMORY" or _MEMORY.search(said) is not None
