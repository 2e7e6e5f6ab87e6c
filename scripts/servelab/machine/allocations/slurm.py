"""Slurm: the devices of the job that this process runs in.

Slurm sets `CUDA_VISIBLE_DEVICES` for a gres named `gpu`. If the job's cgroup hides the other devices, it counts from 0,
as `nvidia-smi` then does. For other gres it sets nothing: `scontrol show job -d` lists their numbers by node.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from itertools import product

from servelab.core.errors import Outage
from servelab.machine.allocations import ALLOCATIONS, Allocation
from servelab.machine.devices import DEVICES, Device, DeviceKind, ask, named
from servelab.machine.topology import numbers

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
        """See `Allocation.active`."""
        return "SLURM_JOB_ID" in os.environ

    def giver(self) -> str:
        """See `Allocation.giver`."""
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
        """See `Allocation.job_id`."""
        return os.environ["SLURM_JOB_ID"]

    def node(self) -> str:
        """See `Allocation.node`."""
        return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]

    def other_nodes(self) -> list[str]:
        """See `Allocation.other_nodes`."""
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
        """See `Allocation.on_node`; a step beside the job's own, with all CPUs and devices that the job has there.

        What describes the step that this process is in would change the new step.
        """
        step = ["srun", f"--jobid={self.job_id()}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "SLURMD_", "SRUN_", "SBATCH_")) or name == "SLURM_CONF"
        }
        for kind in DEVICES:
            variables.pop(kind.variable or "", None)
        return [*step, "--cpu-bind=none", "--mem=0", *command], variables


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
