"""The agent on another node of a run: reserves that node's devices, and runs that node's part of the server.

`servelab.measure.nodes` starts `python -m servelab.measure.node_agent` in a step of the job on that node. A line of its
standard input is a request, `{"id": 1, "do": "start", "given": {…}}`, and has one line as its answer, `{"id": 1, …}` or
`{"id": 1, "error": …, "code": …}`. If standard input closes without the request `end`, the measuring process is gone:
the agent ends its part, and the devices are free once that is gone. If the agent itself is killed, the part's warden
does so.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from servelab.core import cli
from servelab.core.credentials import shell_variables
from servelab.core.errors import ServelabError
from servelab.core.processes import Supervised, stop_all
from servelab.machine.cpu import oom_kills
from servelab.machine.device_names import WantedDevices
from servelab.machine.devices import DEVICES
from servelab.machine.lease import Lease, PortLease, lease, lease_ports, pinned
from servelab.measure.inputs import devices_of, interface_of, this_machine
from servelab.measure.interrupts import outage_on_interrupt
from servelab.measure.node_check import check_node
from servelab.measure.run_files import ManifestNode


class _Agent:
    """The node's part of the run. Each public method is a request, by its name."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._whole: Lease | None = None
        self._part: Lease | None = None
        self._ports: PortLease | None = None
        self._process: Supervised | None = None
        self._oom_kills = oom_kills()

    def lease(
        self, device: str, count: int, accelerators: list[str], found_as: dict[str, list[str]], address: str
    ) -> dict[str, Any]:
        """Reserves devices that fit the accelerators' names, however long that takes."""
        wanted = WantedDevices(DEVICES.get(device), accelerators, found_as)
        self._whole = self._stack.enter_context(lease(device, count, wanted.among))
        wanted.check(self._whole.devices, self._whole.allocation.giver())
        check_node(self._whole.devices)
        return {"interface": interface_of(address)}

    def use(self, count: int) -> dict[str, Any]:
        """Chooses the devices of the next starts; answers with what they are and how they are shown."""
        assert self._whole is not None
        self._part = self._whole.part(count)
        return {
            "variables": self._part.environment,
            "node": ManifestNode(
                devices=devices_of(self._part), placement=self._part.placement(), machine=this_machine()
            ).model_dump(mode="json"),
        }

    def port(self) -> dict[str, Any]:
        """Reserves a loopback port for the next start, which some engines' parts serve their health on."""
        self._release_ports()
        self._ports = lease_ports("127.0.0.1")
        return {"port": self._ports.ports[0]}

    def start(self, command: list[str], variables: dict[str, str], log: str) -> dict[str, Any]:
        """Starts the part; its output is appended to `log`."""
        assert self._part is not None
        self.stop()
        self._oom_kills = oom_kills()
        with pinned(self._part.cpus):
            self._process = Supervised(
                command,
                environment={**shell_variables().needed, **variables},
                log=Path(log),
                keep_open=[*self._part.descriptors, *(self._ports.descriptors if self._ports else [])],
            )
        return {}

    def poll(self) -> dict[str, Any]:
        """The part's return code, null without a running or ended part; whether the kernel killed as memory ran out."""
        return {
            "returncode": self._process.poll() if self._process else None,
            "kernel_killed": oom_kills() > self._oom_kills,
        }

    def stop(self) -> dict[str, Any]:
        """Ends the part."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        return {}

    def end(self) -> dict[str, Any]:
        """Ends the part before the agent ends."""
        self.stop()
        self._release_ports()
        return {}

    def _release_ports(self) -> None:
        if self._ports is not None:
            self._ports.release()
            self._ports = None


REQUESTS = ("lease", "use", "port", "start", "poll", "stop", "end")


def _requests() -> Iterator[dict[str, Any]]:
    """Requests until `end`; SIGTERM for this process when standard input closes earlier, whatever it is doing."""
    asked: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            asked.put(json.loads(line))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield (request := asked.get())
        if request["do"] == "end":
            return


def _serve(answers: TextIO) -> None:
    with ExitStack() as stack:
        agent = _Agent(stack)
        stack.callback(stop_all)
        for request in _requests():
            number, name = request["id"], REQUESTS[REQUESTS.index(request["do"])]
            try:
                answer = getattr(agent, name)(**request["given"])
            except ServelabError as error:
                answer = {"error": str(error), "code": error.exit_code}
            answers.write(json.dumps({"id": number, **answer}) + "\n")
            answers.flush()


def main() -> None:
    """Answers on the first standard output; what else is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with outage_on_interrupt():
        _serve(answers)


if __name__ == "__main__":
    cli.run(main)
