"""Jobs that Slurm cannot start as they were asked for: its reason, and the key of the site that asks for it.

Slurm refuses some requests when a job is submitted; others it queues, and they wait without end. Nothing is cancelled
here: a cluster may change, so that they start after all.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
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


_USUAL = re.compile(
    r"None|Priority|Resources|Dependency|BeginTime|JobArrayTaskLimit|Licenses|Cleaning|Prolog|Reservation|SystemFailure"
    r"|(QOS|Assoc|Association)(Grp\w*|Max(Jobs|Submit)\w*|Max\w*Per(User|Account)\w*|(Job|Resource)Limit|UsageThreshold)"
    r"|launch failed.*|NodeDown|Federat\w*|Burst\w*",
    re.IGNORECASE,
)
"""Reasons of jobs that start by themselves, as other jobs end."""
_KEYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("held", ()),  # by someone, for another reason than the site
    ("account", ("account",)),
    ("qos", ("qos",)),
    ("time ?limit|wall", ("most_runtime_min",)),
    ("mem", ("memory_gb",)),
    ("feature|constraints", ("constraint", "gres", "cpus", "memory_gb")),
    ("gres|generic resource", ("gres",)),
    ("invalid partition|down|inactive|notavail|not available \\(", ("partition",)),
    ("partitionconfig|partitionnodelimit|node configuration", ("partition", "gres", "cpus", "memory_gb")),
)
"""What is in a reason, first match → the keys of a placement that may be wrong."""
_FINAL = re.compile(
    r"\binvalid\b|^Memory required|^More processors requested|time limit",
    re.IGNORECASE,
)
"""Refusals that the cluster's next state does not change, unlike a node that is down or a limit of jobs at once.

"Requested node configuration is not available" is not one: a real submission may queue the job (PartitionConfig)."""
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Waiting:
    """A job that Slurm will not start as it is."""

    id: str
    reason: str
    comment: str
    """`rule_<rule>_wildcards_<wildcards>`, given by Snakemake's executor."""


def unsatisfied(folder: Path) -> list[Waiting]:
    """This user's jobs from a folder that wait for something that other jobs' ends do not give them; `Outage`."""
    return [Waiting(*job) for job in jobs_waiting(folder) if not _USUAL.fullmatch(job[1].partition(",")[0])]


def keys_of(reason: str) -> tuple[str, ...]:
    """The keys of a placement that a reason of Slurm is about, the most likely first."""
    return next((keys for pattern, keys in _KEYS if re.search(pattern, reason, re.IGNORECASE)), ("partition",))


def is_final(reason: str) -> bool:
    """Whether a refusal stays until the site, or the cluster's configuration, is changed."""
    return _FINAL.search(reason) is not None


def refusal(request: Mapping[str, str | int]) -> str | None:
    """What Slurm says against a request (names as Snakemake's resources); None if it would take it, or is not there.

    It asks with `sbatch --test-only`, which submits nothing.
    """
    given = [f"--{option}={request[name]}" for name, option in _OPTIONS.items() if name in request]
    extra = shlex.split(str(request.get("slurm_extra", "")))
    command = ["sbatch", "--test-only", *given, *extra, "--wrap", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r"(?:allocation failure|error): (.*)\s*\Z", done.stderr)
    return said[1].strip() if done.returncode and said else None


_OPTIONS = {
    "slurm_partition": "partition",
    "gres": "gres",
    "constraint": "constraint",
    "slurm_account": "account",
    "qos": "qos",
    "cpus_per_task": "cpus-per-task",
    "mem_mb": "mem",
    "runtime": "time",
    "nodes": "nodes",
    "tasks": "ntasks",
}
"""Snakemake's resource → the option of sbatch with the same unit."""
