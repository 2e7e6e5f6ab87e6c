"""Orphaned Slurm jobs: a killed workflow left them in the queue, and they must end before their runs start again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from servelab.core.errors import Outage

_COMMENT = "rule_"
"""Snakemake's executor gives each job the comment `rule_<rule>_wildcards_<wildcards>`."""
_POLL_S = (0.2, 5.0)


@dataclass(frozen=True)
class Job:
    """A job of this user, submitted from one folder."""

    id: str
    comment: str


def jobs_of(folder: Path) -> list[Job]:
    """This user's unfinished jobs that a workflow in the folder submitted; `Outage` if Slurm does not answer."""
    return [Job(job_id, comment) for job_id, _, comment in _listed(folder)]


def jobs_waiting(folder: Path) -> list[tuple[str, str, str]]:
    """Id, Slurm's reason and comment of the folder's jobs that wait in the queue; `Outage` if Slurm does not answer."""
    return _listed(folder, "--states=PENDING")


def _listed(folder: Path, *filters: str) -> list[tuple[str, str, str]]:
    found = []
    for line in _ask("squeue", "--me", "--noheader", "--format=%i|%r|%Z|%k", *filters).splitlines():
        job_id, _, rest = line.partition("|")
        rest, _, comment = rest.rpartition("|")
        reason, _, submitted_from = rest.rpartition("|")
        if comment.startswith(_COMMENT) and Path(submitted_from).resolve() == folder.resolve():
            found.append((job_id, reason, comment))
    return found


def cancel_jobs(folder: Path, timeout_s: float = 600.0) -> list[Job]:
    """Cancels the folder's jobs, waits until all have ended, and returns them.

    `Outage` if some still run after `timeout_s`, as on a lost node: it is unknown what still runs there.
    """
    cancelled = left = jobs_of(folder)
    if cancelled:  # some may have ended meanwhile, which is an error for `scancel`; the queue shows what is left
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
