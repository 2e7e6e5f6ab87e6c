"""Several servers of one configuration as one deployment, with the interface of `servelab.measure.server.Server`.

All are started at the same time, it is healthy when all are, and the failure of one is the failure of the deployment.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from servelab.core.errors import Outage
from servelab.core.files import write_text
from servelab.core.processes import Supervised, last_text
from servelab.engines.adapters import Engine
from servelab.engines.balancers import Balancer
from servelab.machine.lease import PortLease, lease_ports, pinned
from servelab.measure.run_files import ManifestBalancer
from servelab.measure.server import CandidateFailed, Killed, Launch, Server
from servelab.measure.small_answer import ask

_HOST = "127.0.0.1"
_READY_S, _POLL_S, _ANSWER_S = 60.0, 0.1, 5.0
"""Time for a balancer to answer in front of healthy servers, between two questions, and for an answer."""
_LOG_LINES = 12


class Replicas:
    """The servers, and the balancer in front of them."""

    endpoint = parts = None
    """They are on this machine, and were started here."""

    def __init__(
        self, servers: Sequence[Server], balancer: Balancer, engine: Engine, folder: Path, cpus: frozenset[int]
    ) -> None:
        """`folder` is for the balancer's files and log; its process is pinned to `cpus`, the load client's."""
        self.replicas, self._balancer, self._engine = servers, balancer, engine
        self._folder, self._cpus = folder / "balancer", cpus
        self._log = folder / "balancer.log"
        self._front: Supervised | None = None
        self._port: PortLease | None = None
        self.balancer = ManifestBalancer(name=balancer.name)
        """What the manifest says of it: of the last start."""
        self.reach: dict[str, Any] = {}
        if balancer.is_process:
            self._log.touch()

    @property
    def processes(self) -> list[Supervised]:
        """Those whose end ends a load."""
        front = [self._front] if self._front else []
        return [*(process for server in self.replicas for process in server.processes), *front]

    @property
    def serving(self) -> list[tuple[str, int]]:
        """Address and pid of each server that is up."""
        return [each for server in self.replicas for each in server.serving]

    @property
    def base_urls(self) -> list[str]:
        """Addresses that the load client sends to: the balancer's, or those of all servers."""
        return [f"http://{_HOST}:{self._port.ports[0]}"] if self._port else [url for url, _ in self.serving]

    @property
    def logs_from(self) -> dict[Path, int]:
        """See `Server.logs_from`; all of the balancer's log, which is short."""
        logs = {log: start for server in self.replicas for log, start in server.logs_from.items()}
        return logs | ({self._log: 0} if self._log.exists() else {})

    @property
    def is_up(self) -> bool:
        """Whether all were started, and not stopped."""
        return all(server.is_up for server in self.replicas)

    @property
    def launch(self) -> Launch:
        """Of the first server."""
        return self.replicas[0].launch

    @property
    def start_id(self) -> str | None:
        """Random id of the first server's last start, which is one of all."""
        return self.replicas[0].start_id

    @property
    def startup_s(self) -> float | None:
        """Seconds until the last of them was healthy; None if one never was."""
        found = [server.startup_s for server in self.replicas]
        return None if None in found else max(each for each in found if each is not None)

    def start(self) -> None:
        """Starts all servers, waits until all are healthy, and starts the balancer; stops all if one fails."""
        try:
            for server in self.replicas:
                server.begin()
            for number in range(len(self.replicas)):
                with self._named(number) as server:
                    server.start()
            self._start_balancer()
        except (CandidateFailed, Outage):
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the balancer, then all servers."""
        self._stop_balancer()
        for server in self.replicas:
            server.stop()

    def reset_caches(self) -> None:
        """See `Server.reset_caches`. If one has to be started for that, all are; a balancer always is."""
        emptied = []
        for number in range(len(self.replicas)):
            with self._named(number) as server:
                emptied.append(server.empties_caches())
        if all(emptied):
            self._stop_balancer()
            self._start_balancer()
        else:
            self.stop()
            self.start()

    def check_alive(self) -> None:
        """Raises why one of them has ended."""
        for number in range(len(self.replicas)):
            with self._named(number) as server:
                server.check_alive()
        if self._front is not None and (returncode := self._front.poll()) is not None:
            lines = last_text(self._log, 500).splitlines()
            raise Killed("crashed", f"the balancer {self._balancer.name} ended: exit code {returncode}", lines)

    def check_serving(self) -> None:
        """Raises `CandidateFailed` if one of them ends or is no longer healthy; called after requests have failed."""
        self.check_alive()
        for number in range(len(self.replicas)):
            with self._named(number) as server:
                server.check_serving()

    def tail(self, count: int) -> list[str]:
        """The last lines of each server's log since its last start."""
        return [line for server in self.replicas for line in server.tail(-(-count // len(self.replicas)))]

    @contextmanager
    def _named(self, number: int) -> Iterator[Server]:
        """One of the servers; its failure names it, and has its log."""
        server = self.replicas[number]
        try:
            yield server
        except CandidateFailed as failure:
            failure.message = f"server {number} of 0 to {len(self.replicas) - 1}: {failure.message}"
            failure.log_lines = failure.log_lines or server.tail(_LOG_LINES)
            raise

    def _start_balancer(self) -> None:
        """`Outage` if it does not start: it is not the candidate's fault."""
        if not self._balancer.is_process:
            return
        servers = [int(url.rpartition(":")[2]) for url, _ in self.serving]
        self._port = lease_ports(_HOST, 2)
        port, metrics = self._port.ports
        files = self._balancer.files((port, metrics), servers, self._folder)
        self._folder.mkdir(exist_ok=True)
        for name, text in files.items():
            write_text(self._folder / name, text)
        command = self._balancer.command((port, metrics), servers, self._folder)
        self.balancer = ManifestBalancer(
            name=self._balancer.name, version=_printed(self._balancer.version_command()), command=command, files=files
        )
        with pinned(self._cpus):
            self._front = Supervised(
                command,
                environment=self.launch.shell.needed,
                log=self._log,
                keep_open=self._port.descriptors,
            )
        url = f"{self.base_urls[0]}{self._balancer.ready_path or self._engine.ready_path}"
        deadline = time.monotonic() + _READY_S
        while (answer := ask("GET", url, _ANSWER_S)) is None or answer.status != HTTPStatus.OK:
            if self._front.poll() is not None or time.monotonic() > deadline:
                raise Outage(f"the balancer {command[0]} does not serve: {last_text(self._log, 500)}")
            time.sleep(_POLL_S)

    def _stop_balancer(self) -> None:
        if self._front is not None:
            self._front.stop()
            self._front = None
        if self._port is not None:
            self._port.release()
            self._port = None


def _printed(command: Sequence[str]) -> str | None:
    """What a command prints; None if there is none, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True) if command else None
    except (OSError, subprocess.SubprocessError):
        return None
    return " ".join(f"{done.stdout} {done.stderr}".split()) if done else None
