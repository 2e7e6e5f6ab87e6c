"""Slurm: the devices of the job that this process runs in.

Slurm sets `CUDA_VISIBLE_DEVICES` for a gres named `gpu`. If the job's cgroup hides the other devices, it counts from 0,
as `nvidia-smi` then does. For other gres it sets nothing: `scontrol show job -d` lists their numbers by node.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from servelab.core.errors import Outage
from servelab.core.yaml_file import read_shipped
from servelab.machine.allocations import ALLOCATIONS, Allocation
from servelab.machine.devices import DEVICES, Device, DeviceKind, ask, named, numbers

_SET_BY_SLURM = ("CUDA_VISIBLE_DEVICES",)
_JOB = re.compile(r"^JobId=(\d+)", re.MULTILINE)
_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")
_NODE = re.compile(r"(?:^|\s)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GRES = re.compile(r"([^\s:(),]+)(?::[^\s:(),]+)*\((IDX|CNT):([^)]*)\)")
"""A job's gres on a node, in the form of Slurm's `gres.c`: `npu:ascend910b:2(IDX:0-1)`, `npu:ascend910b(CNT:2)`."""


class Slurm(Allocation):
    """A job, or an interactive allocation."""

    name = "slurm"
    gives_memory = True

    def active(self) -> bool:
        return "SLURM_JOB_ID" in os.environ

    def giver(self) -> str:
        return f"Slurm job {self.job_id()}"

    def given(self, kind: DeviceKind, found: Sequence[Device]) -> list[Device]:
        """See `Allocation.given`; all devices of a kind that is not a gres."""
        if not kind.gres:
            return list(found)
        value = os.environ.get(kind.variable) if kind.variable in _SET_BY_SLURM else None
        if kind.variable is not None and value is not None:
            return named(found, value, kind.variable)
        shown = ask(["scontrol", "show", "job", "-d", self.job_id()])
        indices = gres_indices(shown, self.job_id(), self.node(), kind.gres)
        return named(found, ",".join(map(str, indices)), self.giver())

    def job_id(self) -> str:
        return os.environ["SLURM_JOB_ID"]

    def node(self) -> str:
        return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]

    def other_nodes(self) -> list[str]:
        shown = ask(["squeue", "--noheader", "--format=%N", f"--jobs={self.job_id()}"])
        return [node for node in hostnames(shown.strip()) if node != self.node()]

    def address(self, node: str) -> str:
        """See `Allocation.address`; Slurm knows a name or an address of each node, the names are as DNS has them."""
        found = _ADDRESS.search(ask(["scontrol", "show", "node", node]))
        try:
            return str(socket.gethostbyname(found[1] if found else node))
        except OSError as error:
            raise Outage(f"node {node} has no address: {error}") from error

    def on_node(self, node: str, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """See `Allocation.on_node`; a step beside the job's own, with all CPUs and devices that the job has there."""
        return self._step(["--overlap", f"--nodelist={node}", *command])

    def on_any_node(self, gres: str, cpus: int, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """As `on_node`, on the first node that has so many CPUs and such a `gres` free: `gpu:2`; it waits for them."""
        return self._step(["--exact", f"--gres={gres}", f"--cpus-per-task={cpus}", *command])

    def _step(self, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """What describes the step that this process is in would change the new step."""
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "SLURMD_", "SRUN_", "SBATCH_")) or name == "SLURM_CONF"
        }
        for kind in DEVICES:
            variables.pop(kind.variable or "", None)
        step = ["srun", f"--jobid={self.job_id()}", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mem=0"]
        return [*step, *words], variables


def gres_indices(shown: str, job_id: str, node: str, gres: Sequence[str]) -> list[int]:
    """The numbers of a job's devices on a node, from the text of `scontrol show job -d`; `gres` lists possible names.

    Empty if the job has no devices there. `Outage` if Slurm knows how many devices the job has, but not which.
    """
    indices: list[int] = []
    for hosts, list_of_gres in _nodes_of(shown, job_id):
        if node not in hostnames(hosts):
            continue
        for name, what, value in _GRES.findall(list_of_gres):
            if name in gres and what == "CNT":
                raise Outage(
                    f"Slurm gave job {job_id} {value} {name}, but does not say which: its gres.conf must name their "
                    f"files (`Name={name} File=…`)"
                )
            if name in gres:
                indices += numbers(value)
    return sorted(set(indices))


def _nodes_of(shown: str, job_id: str) -> Iterator[tuple[str, str]]:
    """(hosts, their gres) of one job; for the last task of an array, Slurm shows all its tasks."""
    _, *jobs = _JOB.split(shown)
    for number, of_job in zip(jobs[::2], jobs[1::2], strict=True):
        if number == job_id:
            yield from _NODE.findall(of_job)


def hostnames(expression: str) -> list[str]:
    """The hosts in an expression such as `n1,gpu[01-03,7]-ib`."""
    hosts = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", expression):
        pieces = re.findall(r"\[[^\]]*\]|[^\[]+", part)
        choices = [_padded(piece[1:-1]) if piece.startswith("[") else [piece] for piece in pieces]
        hosts += ["".join(combination) for combination in product(*choices)]
    return hosts


def _padded(ranges: str) -> list[str]:
    """The numbers in `01-03,7`, with their leading zeros."""
    found = re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", ranges)
    return [str(n).zfill(len(low)) for low, high in found for n in range(int(low), int(high or low) + 1)]


ALLOCATIONS.register("slurm", Slurm())


_COMMENT = "rule_"
"""Snakemake's executor gives each job the comment `rule_<rule>_wildcards_<wildcards>`."""
_POLL_S = (0.2, 5.0)


class QueuedJob(NamedTuple):
    """A job of this user: one that waits, runs, or has just ended."""

    id: str
    state: str
    node: str
    since: str
    """When it was submitted, or if it does not wait any more, when it began; as Slurm prints it."""
    name: str
    reason: str
    """Why it waits, in Slurm's words."""
    comment: str


def queue(folder: Path, *filters: str) -> list[QueuedJob]:
    """This user's unfinished jobs that a workflow in the folder submitted, in order; `Outage` if Slurm does not answer.

    With `--states=all` also those that ended so recently that Slurm still lists them.
    """
    found = []
    for line in _ask("squeue", "--me", "--noheader", "--format=%i|%T|%N|%V|%S|%j|%r|%Z|%k", *filters).splitlines():
        job_id, state, node, submitted, started, name, rest = line.split("|", 6)
        rest, _, comment = rest.rpartition("|")
        reason, _, submitted_from = rest.rpartition("|")
        if comment.startswith(_COMMENT) and Path(submitted_from).resolve() == folder.resolve():
            since = submitted if state == "PENDING" else started
            found.append(QueuedJob(job_id, state, node, since, name, reason, comment))
    return sorted(found, key=lambda job: int(job.id.partition("_")[0]))


def cancel_jobs(folder: Path, timeout_s: float = 600.0) -> list[QueuedJob]:
    """Cancels the folder's jobs, waits until all have ended, and returns them.

    `Outage` if some still run after `timeout_s`, as on a lost node: it is unknown what still runs there.
    """
    cancelled = left = queue(folder)
    if cancelled:  # some may have ended meanwhile, which is an error for `scancel`; the queue shows what is left
        _ask("scancel", *(job.id for job in cancelled), check=False)
    pause_s, give_up = _POLL_S[0], time.monotonic() + timeout_s
    while left:
        if time.monotonic() > give_up:
            named = ", ".join(job.id for job in left)
            raise Outage(f"Slurm does not end job {named} of an earlier workflow; see `scontrol show job`")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_S[1])
        left = queue(folder)
    return cancelled


def _ask(*command: str, check: bool = True) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=check, timeout=120).stdout
    except subprocess.CalledProcessError as error:
        raise Outage(f"{command[0]}: {error.stderr.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Outage(f"cannot ask Slurm for jobs of an earlier workflow: {error}") from error


_FACTS = read_shipped(Path(__file__).with_suffix(".yaml"))
_USUAL = re.compile("|".join(_FACTS["usual"]), re.IGNORECASE)
"""Reasons of jobs that start by themselves, as other jobs end."""
_KEYS: dict[str, list[str]] = _FACTS["keys"]
OPTIONS: dict[str, str] = _FACTS["options"]
_FINAL = re.compile(r"\binvalid\b|^Memory required|^More processors requested|time limit", re.IGNORECASE)
"""Refusals that the cluster's next state does not change, unlike a node that is down or a limit of jobs at once.

"Requested node configuration is not available" is not one: a real submission may queue the job (PartitionConfig)."""


def unsatisfied(folder: Path) -> list[QueuedJob]:
    """This user's jobs from a folder that wait for something that other jobs' ends do not give them; `Outage`."""
    waiting = queue(folder, "--states=PENDING")
    return [job for job in waiting if not _USUAL.fullmatch(job.reason.partition(",")[0])]


def keys_of(reason: str) -> tuple[str, ...]:
    """The keys of a placement that a reason of Slurm is about, the most likely first."""
    return next((tuple(keys) for sign, keys in _KEYS.items() if re.search(sign, reason, re.IGNORECASE)), ("partition",))


def is_final(reason: str) -> bool:
    """Whether a refusal stays until the site, or the cluster's configuration, is changed."""
    return _FINAL.search(reason) is not None


def refusal(request: Mapping[str, str | int]) -> str | None:
    """Slurm's objection to a request (names as Snakemake's resources); None if it would take it, or is not there.

    It asks with `sbatch --test-only`, which submits nothing.
    """
    given = [f"--{option}={request[name]}" for name, option in OPTIONS.items() if name in request]
    extra = shlex.split(str(request.get("slurm_extra", "")))
    command = ["sbatch", "--test-only", *given, *extra, "--wrap", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30.0)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r"(?:allocation failure|error): (.*)\s*\Z", done.stderr)
    return said[1].strip() if done.returncode and said else _over_memory(request)


def _over_memory(request: Mapping[str, str | int]) -> str | None:
    """The partition's limit of memory: `--test-only` takes more than that, and the job then waits forever."""
    asked, partition = int(request.get("mem_mb", 0)), request.get("slurm_partition")
    with suppress(Outage):
        shown = _ask("scontrol", "show", "partition", str(partition)) if asked and partition else ""
        limit = re.search(r"MaxMemPerNode=(\d+)", shown)
        return f"MaxMemPerLimit: {asked} MB, at most {limit[1]}" if limit and asked > int(limit[1]) else None
    return None
