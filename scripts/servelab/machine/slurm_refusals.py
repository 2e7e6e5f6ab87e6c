"""Jobs that Slurm cannot start as they were asked for: its reason, and the key of the site that asks for it.

Slurm refuses some requests when a job is submitted; others it queues, and they wait without end. Nothing is cancelled
here: a cluster may change, so that they start after all.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servelab.machine.orphaned_slurm_jobs import jobs_waiting

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
