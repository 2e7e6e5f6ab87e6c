"""The other nodes of a run: an agent on each (`servelab.measure.node_agent`), started in the job's own step there.

An agent lives as long as the job's devices are reserved here. It ends, and its part of the server with it, when this
process closes its standard input or ends in any way, and when the batch system ends the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from servelab.core.errors import ConfigError, Outage
from servelab.core.processes import lines_at_ends
from servelab.engines.adapters import Engine
from servelab.engines.server_to_start import Serve, Span
from servelab.machine.allocations import Allocation
from servelab.machine.device_names import WantedDevices
from servelab.measure.inputs import interface_of
from servelab.measure.interrupts import COORDINATOR
from servelab.measure.run_files import ManifestNode

_ANSWER_S = 120.0
"""Time for an answer. Most take milliseconds; a step of a busy cluster may take a minute to start."""
_END_S = 30.0
_PACKAGES = Path(__file__).parents[2]


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

    def reserve(self, wanted: WantedDevices, count: int) -> None:
        """Reserves devices there, and waits as long as it takes; `ConfigError` if its accelerators are others."""
        self.ask("poll")  # it is there
        answer = self.ask(
            "lease",
            timeout_s=None,
            device=wanted.kind.name,
            count=count,
            accelerators=list(wanted.accelerators),
            found_as=dict(wanted.found_as),
            address=self.address,
        )
        self.interface = answer["interface"]

    def use(self, count: int) -> tuple[dict[str, str], ManifestNode]:
        """Chooses the devices of the next starts: variables that make an engine use no others, and what is there."""
        answer = self.ask("use", count=count)
        return answer["variables"], ManifestNode.model_validate(answer["node"])

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


@contextlib.contextmanager
def other_nodes(allocation: Allocation, nodes: int, wanted: WantedDevices, count: int) -> Iterator[Nodes | None]:
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


Enter = Callable[[list[str], dict[str, str]], tuple[list[str], dict[str, str]]]
"""(command, variables) → the command and variables that start it inside its environment."""


@dataclass
class NodePart:
    """One other node's part."""

    node: OtherNode
    shown: Mapping[str, str]
    """Environment variables that make an engine use its devices and no others."""
    used: ManifestNode
    log: Path
    log_from: int = 0
    """Bytes of its log before the last start."""
    lines_from: int = 0
    """The same with the line of the command."""
    command: Sequence[str] = ()
    """Of the last start."""
    variables: Mapping[str, str] | None = None


class NodeParts:
    """The parts of one server, which can be started several times."""

    def __init__(self, engine: Engine, nodes: Nodes, per_node: int, folder: Path, enter: Enter) -> None:
        """`per_node` accelerators are used on each node; `folder`, which all nodes see, is for the parts' logs."""
        self._engine, self._nodes, self._enter = engine, nodes, enter
        self.addresses = (nodes.address, *(node.address for node in nodes.others))
        """Of all nodes, by rank."""
        self.parts = [
            NodePart(node, *node.use(per_node), folder / f"server-node{rank}.log")
            for rank, node in enumerate(nodes.others, start=1)
        ]
        for part in self.parts:
            part.log.touch()
        self._started = False

    def span(self, port: int) -> Span:
        """The first node's place in a server that is about to start, whose parts meet on its port `port`."""
        return Span(self.addresses, port=port, interface=self._nodes.interface)

    def start(self, serve: Serve, variables: Mapping[str, str]) -> None:
        """Starts the parts of the server that `serve` starts here; `variables` are those of shell and study."""
        assert serve.span is not None
        self._started = True
        for rank, part in enumerate(self.parts, start=1):
            span = replace(serve.span, rank=rank, interface=part.node.interface)
            of_part = replace(serve, more_ports=(), span=span)
            node = self._engine.node_environment(span)
            own = {**node, **variables, **part.shown, **self._engine.environment(of_part)}
            part.log_from = part.log.stat().st_size
            command = self._engine.command(replace(of_part, port=part.node.port()))
            part.command, part.variables = self._enter(command, own)
            with part.log.open("ab") as log:
                log.write(f"=== {shlex.join(part.command)}\n".encode())
            part.lines_from = part.log.stat().st_size
            part.node.start(part.command, part.variables, part.log)

    def lost(self) -> tuple[str, int] | None:
        """A part that has ended, in words, and its return code; None if all run. `Outage` if an agent has ended."""
        for part in self.parts if self._started else ():
            if (returncode := part.node.poll()) is not None:
                ending = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
                return f"its part on node {part.node.name} ended: {ending}", returncode
        return None

    def lines(self) -> list[str]:
        """The parts' logs since the last start; of very long ones the first and the last part."""
        return [line for part in self.parts for line in lines_at_ends(part.log, part.lines_from)]

    def stop(self) -> None:
        """Ends the parts. One whose agent has ended is ended by its warden."""
        self._started = False
        with ThreadPoolExecutor(len(self.parts)) as pool:
            list(pool.map(_stop, self.parts))

    def kernel_killed(self) -> bool:
        """Whether the kernel of another node has killed a process because memory ran out since the last start."""
        return any(part.node.kernel_killed for part in self.parts)


def _stop(part: NodePart) -> None:
    with contextlib.suppress(Outage):
        part.node.stop()
