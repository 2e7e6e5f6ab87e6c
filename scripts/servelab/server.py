"""One engine's server: started on a free loopback port, waited for until it is healthy, stopped with all it started."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import psutil

from servelab.engines import Engine, Serve, telling_lines
from servelab.errors import Outage
from servelab.files import write_text
from servelab.pinning import pinned
from servelab.ports import PortLease, lease_ports
from servelab.processes import Supervised
from servelab.workers import Workers

_INHERITED = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|XDG_\w+|CUDA_(HOME|PATH|CACHE_PATH)|NVIDIA_\w+|ASCEND_\w+|HF_HOME"
)
"""What a server inherits. Anything else (`OMP_NUM_THREADS`, `VLLM_…`, `PYTHONPATH`) could change a measurement behind
the run's identity; a study names what it wants in `environment_variables`."""

Enter = Callable[[list[str], dict[str, str]], tuple[list[str], dict[str, str]]]
"""(command, variables) → what to start so that the command runs in its environment with these variables."""

_PORT_TAKEN = re.compile(r"address already in use|couldn't bind|failed to bind|errno 98", re.IGNORECASE)
_PORT_ATTEMPTS = 3
_POLL_S = (0.05, 0.5)
_SAY_EVERY_S = 30.0
_LAST_WORDS_S = 5.0
"""Time for a server that lost a worker to end by itself, with its own words on what happened."""
_RECOVERY_S = 10.0
"""Time to answer as healthy again after requests have failed."""


class CandidateFailed(Exception):  # noqa: N818 (a finding, not an error)
    """A finding, not an outage: this configuration does not serve the load."""

    def __init__(self, reason: str, message: str, log_lines: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason, self.message, self.log_lines = reason, message, list(log_lines)


class KilledForMemory(CandidateFailed):
    """The server ended without a word on why, and the kernel had killed a process for want of host memory."""


@dataclass(frozen=True)
class Launch:
    """A command and its whole environment."""

    command: list[str]
    variables: dict[str, str]
    """Variables set on purpose."""

    @property
    def environment(self) -> dict[str, str]:
        """These variables over the few a server inherits."""
        inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
        return {**inherited, **self.variables}


class Server:
    """A server that can be started again and again; its output of all starts is in one log."""

    def __init__(
        self,
        engine: Engine,
        serve: Serve,
        *,
        variables: Mapping[str, str],
        log: Path,
        startup_timeout_s: float,
        keep_open: Sequence[int] = (),
        cpus: frozenset[int] = frozenset(),
        enter: Enter = lambda command, variables: (command, variables),
        root: Callable[[int], int] = lambda pid: pid,
        clear: Callable[[list[str]], None] = lambda started: None,
    ) -> None:
        """`serve.port` is ignored: each start leases one. `variables` are the devices' and the study's.

        It is kept on `cpus`, on none in particular if they are empty.

        `enter` leads a command into the engine's environment; `root` tells the server's main process by the one that
        was started, which is another where a daemon runs it; `clear` strikes off what is left of one that has ended.
        """
        self._engine, self._serve, self._variables = engine, serve, dict(variables)
        self._log, self._startup_timeout_s, self._keep_open = log, startup_timeout_s, list(keep_open)
        self._cpus, self._enter, self._root, self._clear = cpus, enter, root, clear
        self._ports: PortLease | None = None
        self._log_start = 0
        self._oom_kills = _oom_kills()
        self.process: Supervised | None = None
        self.pid = 0
        """Its main process, once it is healthy."""
        self.starts = 0
        """Healthy starts so far."""
        self.startup_s: float | None = None
        """Time from command to health of the first start, in seconds."""
        self.launch = self._launch(0)
        """What was started last."""

    @property
    def base_url(self) -> str:
        """Address, without a path."""
        return f"http://{self._serve.host}:{self._serve.port}"

    def start(self) -> None:
        """Starts the server and returns when it is healthy; `CandidateFailed` if it never is.

        A port that somebody else has taken meanwhile says nothing about the candidate: another is tried, and in the end
        it is an `Outage`.
        """
        for _ in range(_PORT_ATTEMPTS):
            try:
                self._start_once()
                return
            except CandidateFailed as failure:
                self.stop()
                taken = [line for line in self._lines() if _PORT_TAKEN.search(line)]
                if failure.reason == "never_healthy" or not taken:
                    raise
        raise Outage(f"the server found its port taken {_PORT_ATTEMPTS} times: {taken[-1].strip()[:400]}")

    def restart(self) -> None:
        """Stops it if it runs, and starts it."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Ends the server and all it started."""
        if self.process is not None:
            self.process.stop()
            self.process = None
            self._clear(self.launch.command)
        if self._ports is not None:
            self._ports.release()
            self._ports = None

    def reset_caches(self) -> None:
        """Makes sure that nothing is left of the requests so far: by the engine's own means, or by a restart.

        `CandidateFailed` if the server has ended since: a restart would hide it.
        """
        if self.process is None:
            self.start()
            return
        self.check_alive()
        try:
            done = self._engine.reset_caches(self.base_url)
        except httpx.HTTPError:
            done = False
        if not done:
            self.restart()

    def check_alive(self) -> None:
        """Raises `CandidateFailed` if the server has ended by itself, or has outlived one of its workers by seconds."""
        if self.process is None:
            return
        if (returncode := self.process.poll()) is not None:
            if returncode == Outage.exit_code:
                raise Outage("the engine's container could not be run")
            raise self._failure(f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}")
        if (lost := self._workers.lost()) and lost[1] > _LAST_WORDS_S:
            raise self._failure(f"its worker {lost[0]} ended, and it did not")

    def check_serving(self) -> None:
        """Raises `CandidateFailed` if the server ends or is not healthy any more; for when requests have failed."""
        deadline = time.monotonic() + _RECOVERY_S
        with httpx.Client(trust_env=False, timeout=_RECOVERY_S / 2) as client:
            while True:
                self.check_alive()
                if not self._workers.lost() and self._answers(client):
                    return
                if time.monotonic() > deadline:
                    raise self._failure(f"not healthy any more for {_RECOVERY_S:g} s")
                time.sleep(_POLL_S[1])

    def tail(self, count: int) -> list[str]:
        """The log's last lines since the last start."""
        return [line for line in self._lines() if line.strip()][-count:]

    def _start_once(self) -> None:
        self._ports = lease_ports(self._serve.host, 1 + self._engine.more_ports)
        port, *more = self._ports.ports
        self._serve = replace(self._serve, port=port, more_ports=tuple(more))
        started = time.monotonic()
        with pinned(self._cpus):
            self._start_process(self._ports.descriptors)
        assert self.process is not None
        self._wait_healthy(self.process, started)
        self.starts += 1
        if self.startup_s is None:
            self.startup_s = time.monotonic() - started

    def _start_process(self, ports: Sequence[int]) -> None:
        self.launch = self._launch(self._serve.port)
        for name, text in self._engine.files(self._serve).items():
            write_text(self._serve.folder / name, text)
        with self._log.open("ab") as log:
            log.write(f"=== {shlex.join(self.launch.command)}\n".encode())
        self._log_start = self._log.stat().st_size
        self._oom_kills = _oom_kills()
        keep_open = [*self._keep_open, *ports]
        self.process = Supervised(
            self.launch.command, environment=self.launch.environment, log=self._log, keep_open=keep_open
        )
        self._workers = Workers(self._engine.worker_names, self.process.pid)

    def _wait_healthy(self, process: Supervised, started: float) -> None:
        pause_s, say_at = _POLL_S[0], started + _SAY_EVERY_S
        with httpx.Client(trust_env=False, timeout=5.0) as client:
            while True:
                process.wait(pause_s)
                self.check_alive()
                if self._answers(client) and _listens(pid := self._root(process.pid), self._serve.port):
                    self.pid, self._workers = pid, Workers(self._engine.worker_names, pid)
                    return
                now = time.monotonic()
                if now - started > self._startup_timeout_s:
                    _, lines = telling_lines(self._engine, self._lines())
                    text = f"not healthy within {self._startup_timeout_s:g} s"
                    raise CandidateFailed("never_healthy", text, [*lines, *self.tail(3)])
                if now > say_at:
                    say_at = now + _SAY_EVERY_S
                    print(f"starting for {now - started:.0f} s: {''.join(self.tail(1))}", file=sys.stderr, flush=True)
                pause_s = min(pause_s * 1.5, _POLL_S[1])

    def _answers(self, client: httpx.Client) -> bool:
        try:
            return client.get(self.base_url + self._engine.ready_path).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _failure(self, ending: str) -> CandidateFailed:
        """What became of the server: why by its log, and how it ended."""
        sign, lines = telling_lines(self._engine, self._lines())
        reason = sign or "crashed"
        failed = CandidateFailed
        if reason == "crashed" and _oom_kills() > self._oom_kills:
            reason, failed = "out_of_memory", KilledForMemory
            ending += "; meanwhile the kernel killed a process for want of memory"
        line = lines[0].strip()[:400] if lines else "nothing"
        message = f"{line} ({ending})" if sign else f"{ending}; it last said: {line}"
        return failed(reason, message, lines)

    def _launch(self, port: int) -> Launch:
        serve = replace(self._serve, port=port)
        variables = {**self._engine.environment(serve), **self._variables}
        return Launch(*self._enter(self._engine.command(serve), variables))

    def _lines(self) -> list[str]:
        """The log since the last start."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace").splitlines()


def _listens(pid: int, port: int) -> bool:
    """Whether the process or a descendant listens there: a stranger that took the port would look healthy too."""
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return True
    except psutil.Error:
        pass
    return False


def _oom_kills() -> int:
    """How often the kernel has killed a process for want of memory since it booted; 0 where it does not tell."""
    found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    return int(found.group(1)) if found else 0
