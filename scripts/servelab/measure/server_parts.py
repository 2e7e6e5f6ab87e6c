"""A server's parts on the other nodes of its run: started with it, watched with it, stopped with it."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from servelab.core.errors import Outage, ServelabError
from servelab.core.processes import lines_at_ends
from servelab.engines.adapters import Engine
from servelab.engines.server_to_start import Serve, Span
from servelab.measure.nodes import Nodes, OtherNode, Used

_POLL_S = 0.2
_PROGRAM = """\
import json, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    asked.sendall(json.dumps(sys.argv[2:]).encode() + b"\\n")
    sys.exit(int(asked.makefile().readline() or 1))
"""


class Launcher:
    """Takes commands between `open` and `close`; only this user's processes can reach it."""

    def __init__(self, run: Callable[[str, list[str]], Callable[[], int | None]]) -> None:
        """`run` starts a command on the node with an address; the result tells its return code, None while it runs."""
        self._run = run
        self._open: tuple[Path, socket.socket] | None = None

    def open(self) -> Path:
        """Takes commands from now on; returns the program."""
        self.close()
        folder = Path(tempfile.mkdtemp(prefix="servelab-"))  # a socket's path must be short
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "socket"))
        listener.listen()
        self._open = folder, listener
        program, words = folder / "launch", [sys.executable, "-c", _PROGRAM, str(folder / "socket")]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        program.chmod(0o700)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return program

    def close(self) -> None:
        """Takes no more commands."""
        if self._open is not None:
            folder, listener = self._open
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for one
            listener.close()
            shutil.rmtree(folder, ignore_errors=True)
            self._open = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                asked, _ = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: socket.socket) -> None:
        with asked, contextlib.suppress(OSError, ServelabError, LookupError):
            address, *words = json.loads(asked.makefile().readline())
            # as ssh does: the launcher quotes its words for a shell there
            poll = self._run(address, ["/bin/sh", "-c", " ".join(words)])
            while (returncode := poll()) is None:
                time.sleep(_POLL_S)
            asked.sendall(f"{returncode if returncode >= 0 else 128 - returncode}\n".encode())


Enter = Callable[[list[str], dict[str, str]], tuple[list[str], dict[str, str]]]
"""(command, variables) → the command and variables that start it inside its environment."""


@dataclass
class Part:
    """One other node's part."""

    node: OtherNode
    used: Used
    log: Path
    log_from: int = 0
    """Bytes of its log before the last start."""
    lines_from: int = 0
    """The same with the line of the command."""
    command: Sequence[str] = ()
    """Of the last start; empty where the first node's command starts it."""
    variables: Mapping[str, str] | None = None


class Parts:
    """The parts of one server, which can be started several times."""

    def __init__(self, engine: Engine, nodes: Nodes, per_node: int, folder: Path, enter: Enter) -> None:
        """`per_node` accelerators are used on each node; `folder`, which all nodes see, is for the parts' logs."""
        self._engine, self._nodes, self._enter = engine, nodes, enter
        self.addresses = (nodes.address, *(node.address for node in nodes.others))
        """Of all nodes, by rank."""
        self.parts = [
            Part(node, node.use(per_node), folder / f"server-node{rank}.log")
            for rank, node in enumerate(nodes.others, start=1)
        ]
        for part in self.parts:
            part.log.touch()
        self._launcher = Launcher(self._launch) if engine.launches_nodes else None
        self._started = False

    def span(self, port: int) -> Span:
        """The first node's place in a server that is about to start, whose parts meet on its port `port`."""
        return self._nodes.span(port, self._launcher.open() if self._launcher else Path("/launcher"))

    def start(self, serve: Serve, variables: Mapping[str, str]) -> None:
        """Starts the parts of the server that `serve` starts here; `variables` are those of shell and study.

        Where the first node's command starts them, it can do so from now on.
        """
        assert serve.span is not None
        self._started = True
        for rank, part in enumerate(self.parts, start=1):
            span = replace(serve.span, rank=rank, interface=part.node.interface)
            of_part = replace(serve, more_ports=(), span=span)
            node = self._engine.node_environment(span)
            own = {**node, **variables, **part.used.variables, **self._engine.environment(of_part)}
            part.log_from = part.lines_from = part.log.stat().st_size
            command: list[str] = []
            if self._launcher is None:
                command = self._engine.command(replace(of_part, port=part.node.port()))
            command, part.variables = self._enter(command, own)
            part.command = command
            if self._launcher is None:
                self._run(part, command)

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
        if self._launcher is not None:
            self._launcher.close()
        with ThreadPoolExecutor(len(self.parts)) as pool:
            list(pool.map(_stop, self.parts))

    def kernel_killed(self) -> bool:
        """Whether the kernel of another node has killed a process because memory ran out since the last start."""
        return any(part.node.kernel_killed for part in self.parts)

    def _launch(self, address: str, command: list[str]) -> Callable[[], int | None]:
        part = next(part for part in self.parts if part.node.address == address)
        self._run(part, command)
        return part.node.poll

    def _run(self, part: Part, command: Sequence[str]) -> None:
        with part.log.open("ab") as log:
            log.write(f"=== {shlex.join(command)}\n".encode())
        part.lines_from = part.log.stat().st_size
        part.node.start(command, part.variables or {}, part.log)


def _stop(part: Part) -> None:
    with contextlib.suppress(Outage):
        part.node.stop()
