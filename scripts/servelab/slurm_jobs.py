"""Jobs that a killed workflow has left in Slurm's queue: they must end before their runs start again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from servelab.errors import Outage

_COMMENT = "rule_"
"""How Snakemake's executor begins the comment of a job: `rule_<rule>_wildcards_<wildcards>`."""
_POLL_S = (0.2, 5.0)


@dataclass(frozen=True)
class Job:
    """A job of this user, submitted from one folder."""

    id: str
    comment: str


def jobs_of(folder: Path) -> list[Job]:
    """This user's jobs that a workflow in the folder submitted and that have not ended; `Outage` if Slurm is silent."""
    jobs = []
    for line in _ask("squeue", "--me", "--noheader", "--format=%i|%Z|%k").splitlines():
        job_id, _, rest = line.partition("|")
        submitted_from, _, comment = rest.rpartition("|")
        if comment.startswith(_COMMENT) and Path(submitted_from).resolve() == folder.resolve():
            jobs.append(Job(job_id, comment))
    return jobs


def cancel_jobs(folder: Path, timeout_s: float = 600.0) -> list[Job]:
    """Cancels the folder's jobs and returns them once all have ended, servers included.

    `Outage` if some have not ended by then, as on a node that went away: nobody can tell what still runs there.
    """
    cancelled = left = jobs_of(folder)
    if cancelled:  # of these, some may have ended meanwhile, which `scancel` calls an error: what is left tells
        _ask("scancel", *(job.id for job in cancelled), check=False)
    pause_s, give_up = _POLL_S[0], time.monotonic() + timeout_s
    while left:
        if time.monotonic() > give_up:
            raise Outage(f"Slurm does not end job {_names(left)} of an earlier workflow; see `scontrol show job`")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_S[1])
        left = jobs_of(folder)
    return cancelled


def _names(jobs: Sequence[Job]) -> str:
    return ", ".join(job.id for job in jobs)


def _ask(*command: str, check: bool = True) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=check, timeout=120).stdout
    except subprocess.CalledProcessError as error:
        raise Outage(f"{command[0]}: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Outage(f"cannot ask Slurm for jobs of an earlier workflow: {error}") from error
