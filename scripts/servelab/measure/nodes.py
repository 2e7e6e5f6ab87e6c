"""The other nodes of a run: an agent on each (`servelab.measure.node_agent`), started in the job's own step there.

An agent lives as long as the job's devices are reserved here. It ends, and its part of the server with it, when this
process closes its standard input or ends in any way, and when the batch system ends the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError, Outage
from servelab.engines.server_to_start import Span
from servelab.machine.allocations import Allocation
from servelab.machine.device_names import Wanted
from servelab.machine.lease import Placement
from servelab.measure.inputs import interface_of
from servelab.measure.interrupts import COORDINATOR
from servelab.measure.run_files import Machine, ManifestDevice

_ANSWER_S = 120.0
"""Time for an answer. Most take milliseconds; a step of a busy cluster may take a minute to start."""
_END_S = 30.0
_PACKAGES = Path(__file__).parents[2]


@dataclass(frozen=True)
class Used:
    """What another node has for a configuration's servers."""

    variables: Mapping[str, str]
    """Environment variables that make an engine use its devices and no others."""
    devices: list[ManifestDevice]
    placement: Placement
    machine: Machine


class OtherNode:
    """One other node; its methods raise `Outage` if its agent has ended or does not answer."""

    def __init__(self, allocation: Allocation, name: str) -> None:
        self.name, self.address = name, allocation.address(name)
        self.interface = ""
        self.kernel_killed = False
        """Whether its kernel had killed a process because memory ran out since the part's start, at the last `poll`."""
        command, variables = allocation.on_node(name, [sys.executable, "-m", "servelab.measure.node_agent"])
        variables.pop(COORDINATOR, None)  # its pid is of this machine
        self._step = subprocess.Popen(
            command,
            env={**variables, "PYTHONPATH": str(_PACKAGES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends it in order
        )
        self._lock = threading.Lock()
        self._count, self._unread = 0, b""

    def reserve(self, wanted: Wanted, count: int) -> None:
        """Reserves devices there, and waits as long as it takes; `ConfigError` if its accelerators are others."""
        self.ask("poll")  # it is there
        answer = self.ask(
            "lease",
            timeout_s=None,
            device=wanted.kind.name,
            count=count,
            accelerators=list(wanted.accelerators),
            stated={name: each.model_dump(mode="json") for name, each in wanted.stated.items()},
            address=self.address,
        )
        self.interface = answer["interface"]

    def use(self, count: int) -> Used:
        """Chooses the devices of the next starts."""
        answer = self.ask("use", count=count)
        devices = [ManifestDevice.model_validate(device) for device in answer["devices"]]
        placement = Placement.model_validate(answer["placement"])
        return Used(answer["variables"], devices, placement, Machine.model_validate(answer["machine"]))

    def port(self) -> int:
        """A loopback port there for the next start."""
        return int(self.ask("port")["port"])

    def start(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        """Starts the node's part of a server, whose output is appended to `log`."""
        self.ask("start", command=list(command), variables=dict(variables), log=str(log.absolute()))

    def poll(self) -> int | None:
        """The part's return code, negative for a signal; None if it runs, or none was started."""
        answer = self.ask("poll")
        self.kernel_killed = bool(answer["kernel_killed"])
        returncode: int | None = answer["returncode"]
        return returncode

    def stop(self) -> None:
        """Ends the part; it may take as long as its grace."""
        self.ask("stop")

    def close(self) -> None:
        """Ends the agent with what it runs; its devices are free then."""
        with contextlib.suppress(Outage):
            self.ask("end", timeout_s=_END_S)
        assert self._step.stdin is not None
        with contextlib.suppress(OSError):
            self._step.stdin.close()
        try:
            self._step.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._step.kill()
            self._step.wait()

    def ask(self, do: str, timeout_s: float | None = _ANSWER_S, **given: object) -> dict[str, Any]:
        """The agent's answer to a request. Answers to requests that were given up are passed over."""
        assert self._step.stdin is not None
        with self._lock:
            self._count += 1
            request = json.dumps({"id": self._count, "do": do, "given": given}) + "\n"
            try:
                self._step.stdin.write(request.encode())
                self._step.stdin.flush()
            except (OSError, ValueError) as error:  # the latter if it is closed here
                raise self._lost() from error
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            while (answer := self._line(deadline)).get("id") != self._count:
                continue
        if "error" in answer:
            kind = ConfigError if answer["code"] == ConfigError.exit_code else Outage
            raise kind(f"node {self.name}: {answer['error']}")
        return answer

    def _line(self, deadline: float | None) -> dict[str, Any]:
        assert self._step.stdout is not None
        while b"\n" not in self._unread:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._step.stdout], [], [], left_s)[0]:
                raise Outage(f"node {self.name}: its agent does not answer")
            if not (read := os.read(self._step.stdout.fileno(), 1 << 16)):
                raise self._lost()
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return dict(json.loads(line))

    def _lost(self) -> Outage:
        return Outage(f"node {self.name}: its agent has ended, and the node's part of the server with it")


@dataclass(frozen=True)
class Nodes:
    """All nodes of a run on several; this process is on the first."""

    address: str
    interface: str
    others: Sequence[OtherNode]

    def span(self, port: int, launcher: Path) -> Span:
        """The first node's place."""
        addresses = (self.address, *(other.address for other in self.others))
        return Span(addresses, port=port, interface=self.interface, launcher=launcher)


@contextlib.contextmanager
def other_nodes(allocation: Allocation, nodes: int, wanted: Wanted, count: int) -> Iterator[Nodes | None]:
    """Reserves `count` devices on each of the job's other nodes; None if a run takes one node.

    `Outage` if the job has fewer nodes; `ConfigError` if their accelerators are others.
    """
    if nodes == 1:
        yield None
        return
    names = allocation.other_nodes()[: nodes - 1]
    if len(names) < nodes - 1:
        raise Outage(f"this run takes {nodes} nodes, {allocation.giver()} has {len(names) + 1}; it needs a Slurm job")
    address = allocation.address(str(allocation.node()))
    interface = interface_of(address)
    with contextlib.ExitStack() as stack:
        others = []
        for name in names:
            others.append(other := OtherNode(allocation, name))
            stack.callback(other.close)
        for other in others:
            other.reserve(wanted, count)
        yield Nodes(address, interface, others)
