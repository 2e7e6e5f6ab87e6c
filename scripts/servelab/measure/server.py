"""One server of an engine: starts it on a free loopback port, waits until it is healthy, stops all its processes."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from servelab.core.credentials import ShellVariables, shell_variables
from servelab.core.errors import Outage
from servelab.core.files import write_text
from servelab.core.processes import Supervised, lines_at_ends
from servelab.engines.adapters import Engine
from servelab.engines.failure_explanation import Explanation
from servelab.engines.failure_signs import PORT_TAKEN
from servelab.engines.server_to_start import Serve
from servelab.machine.cpu import oom_kills
from servelab.machine.lease import PortLease, lease_ports, pinned
from servelab.measure.nodes import Enter, NodeParts
from servelab.measure.run_files import ManifestBalancer
from servelab.measure.small_answer import ask


class Workers:
    """The workers of one running server."""

    def __init__(self, names: re.Pattern[str] | None, pid: int) -> None:
        """`pid` is the server's main process."""
        self._names, self._pid = names, pid
        self._seen: dict[psutil.Process, str] = {}
        self._lost_at: float | None = None
        self._look()

    def lost(self) -> tuple[str, float] | None:
        """A worker that has ended although the server runs, and seconds since that was noticed; None if none has."""
        self._look()
        gone = [name for worker, name in self._seen.items() if not _lives(worker)]
        if not gone:
            return None
        self._lost_at = self._lost_at or time.monotonic()
        return gone[0], time.monotonic() - self._lost_at

    def _look(self) -> None:
        """Adds new workers, also orphaned ones: these are children of the process that started the server."""
        if (names := self._names) is None:
            return
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(psutil.Process(self._pid).ppid()).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if process not in self._seen and (found := names.search(" ".join(process.cmdline()))):
                        self._seen[process] = found.group()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_ANY_ADDRESS = ""
"""To find ports that are free on each address: parts of a server meet on one that other nodes reach."""
_POLL_S = (0.05, 0.5)
_ANSWER_S, _RESET_S = 5.0, 60.0
"""Time for a server to say that it is healthy, and to empty its caches."""
_REPORT_EVERY_S = 30.0
_OTHERS_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that come from outside: a process that is at fault itself ends by another, such as SIGSEGV or SIGABRT."""
_KILLED = frozenset(code for number in _OTHERS_SIGNALS for code in (-number, 128 + number))
"""Return codes of a process that was ended by one of them; a shell or a container adds 128."""
_NAMES_SIGNAL = re.compile(r"SIG(KILL|TERM)\b|\bsignal:? (9|15)\b|\bexit ?code:? -(9|15)\b|': -(9|15)\b", re.IGNORECASE)
"""A log line about a process that was ended by such a signal; only its parent, the server, knows how it ended."""
_BUS_ERROR = re.compile(rf"signal {signal.SIGBUS:d}\b|exit code {128 + signal.SIGBUS}\b")
_EXIT_S = 5.0
"""Time for a server that lost a worker to exit by itself and log what happened."""
_RECOVERY_S = 10.0
"""Time to become healthy again after requests have failed."""


class CandidateFailed(Exception):  # noqa: N818 (a finding, not an error)
    """A finding, not an outage: this configuration does not serve the load."""

    def __init__(self, reason: str, message: str, log_lines: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason, self.message, self.log_lines = reason, message, list(log_lines)


class EnvironmentFault(Outage):
    """This node or installation is at fault, so that nothing is found out about the configuration; has a remedy."""

    kind = "environment"

    def __init__(self, why: Explanation, ending: str) -> None:
        super().__init__(f"{why.message} ({ending}). To mend it: {why.remedy}")
        self.reason, self.log_lines = why.reason, why.lines


class Killed(CandidateFailed):
    """The server or a process of it may have been killed from outside: no reason of its own is known."""


class KilledForMemory(Killed):
    """The server ended without logging why, and the kernel had killed a process because host memory ran out."""


@dataclass(frozen=True)
class Launch:
    """A command and its environment."""

    command: list[str]
    variables: dict[str, str]
    """Variables set by the engine, the devices and the study, and those of the shell that are passed by name."""
    shell: ShellVariables
    """Variables of the shell that reach the server, and those that do not."""

    @property
    def environment(self) -> dict[str, str]:
        """All variables: these, and the few that any program needs."""
        return {**self.shell.needed, **self.variables}


class Server:
    """A server that can be started several times; the output of all starts goes to one log."""

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
        parts: NodeParts | None = None,
    ) -> None:
        """`serve.port` is ignored: each start leases a port. `variables` are those of the devices and the study.

        The server is pinned to `cpus`; it may use all CPUs if they are empty. `enter` makes a command run inside the
        engine's environment. `root` returns the pid of the server's main process for the pid that was started; they
        differ if a daemon runs the server. `clear` removes what a server that has ended left behind. `parts` are those
        on other nodes.
        """
        self._engine, self._serve, self._variables = engine, serve, dict(variables)
        self._log, self._startup_timeout_s, self._keep_open = log, startup_timeout_s, list(keep_open)
        self.cpus, self._enter, self._root, self._clear = cpus, enter, root, clear
        self.parts = parts
        self._ports: PortLease | None = None
        self._log_start = 0
        self._log_from = 0
        self.start_id: str | None = None
        """Random id of the last start, also of one that failed; None before the first."""
        self._oom_kills = oom_kills()
        self.process: Supervised | None = None
        self.pid = 0
        """Pid of its main process; 0 until it is healthy."""
        self._begun_at = 0.0
        self.starts = 0
        """Successful starts so far."""
        self.startup_s: float | None = None
        """Seconds from the command until the server was healthy, at the last start; None if it did not become so."""
        self.endpoint = None
        self.reach: dict[str, Any] = {}
        """Of a server that already ran: what its manifest says of it, and fields of a load plan."""
        self.launch = self._launch(0)
        """Command and variables of the last start."""
        self.replicas: Sequence[Server] = ()
        """It is one server (`servelab.measure.replicas`)."""
        self.balancer: ManifestBalancer | None = None

    @property
    def processes(self) -> list[Supervised]:
        """The process whose end ends a load; empty if the server is not up."""
        return [self.process] if self.process else []

    @property
    def serving(self) -> list[tuple[str, int]]:
        """Address and pid of the server; nothing if it is not up."""
        return [(self.base_url, self.pid)] if self.is_up else []

    @property
    def base_urls(self) -> list[str]:
        """Addresses that the load client sends to."""
        return [self.base_url]

    @property
    def logs_from(self) -> dict[Path, int]:
        """Each log → its bytes before the last start; all of it if the server is not up."""
        parts = self.parts.parts if self.parts else ()
        logs = {self._log: self._log_from} | {part.log: part.log_from for part in parts}
        return logs if self.is_up else {log: log.stat().st_size for log in logs}

    @property
    def is_up(self) -> bool:
        """Whether it was started, and not stopped."""
        return self.process is not None

    @property
    def base_url(self) -> str:
        """Address without a path."""
        return f"http://{self._serve.host}:{self._serve.port}"

    def start(self) -> None:
        """Starts the server unless `begin` has, and returns when it is healthy; `CandidateFailed` if it never is.

        `EnvironmentFault` if the log shows that this node or installation is at fault, or the port is taken, twice.
        """
        for is_last in (False, True):
            try:
                if not self.is_up:
                    self.begin()
                self._wait_healthy()
                break
            except (CandidateFailed, EnvironmentFault) as error:
                self.stop()
                if is_last or error.reason != PORT_TAKEN.reason:
                    raise

    def stop(self) -> None:
        """Ends the server and all processes that it started."""
        if self.parts is not None:
            self.parts.stop()
        if self.process is not None:
            self.process.stop()
            self.process = None
            self._clear(self.launch.command)
        if self._ports is not None:
            self._ports.release()
            self._ports = None

    def reset_caches(self) -> None:
        """Empties the caches by the engine's own request, or by a restart if it has none; starts a stopped server.

        A server that keeps no prompts stays as it is. `CandidateFailed` if the server has ended by itself: a restart
        would hide that.
        """
        if not self.empties_caches():
            self.stop()
            self.start()

    def empties_caches(self) -> bool:
        """Empties the caches by the engine's own request; False if only a start does."""
        if self.process is None:
            return False
        self.check_alive()
        path = self._engine.cache_reset_with(self._serve.options, self._serve.arguments)
        if not path:
            return path == ""
        answer = ask("POST", self.base_url + path, _RESET_S)
        return answer is not None and answer.status == HTTPStatus.OK and self._engine.has_reset(answer.content)

    def check_alive(self) -> None:
        """Raises why the server has ended, or still runs 5 s after one of its workers has ended (`_failure`)."""
        if self.process is None:
            return
        part = self.parts.lost() if self.parts else None
        if (returncode := self.process.poll()) is not None:
            if returncode == Outage.exit_code:
                raise Outage("the engine's container could not be run")
            ending = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
            if part:  # which of them ended first is not known
                ending += f", {part[0]}"
            raise self._failure(ending, killed=returncode in _KILLED or (part is not None and part[1] in _KILLED))
        if part:
            raise self._failure(part[0], killed=part[1] in _KILLED)
        if (lost := self._workers.lost()) and lost[1] > _EXIT_S:
            raise self._failure(f"its worker {lost[0]} ended, but the server did not", killed=True)

    def check_serving(self) -> None:
        """Raises `CandidateFailed` if the server ends or is no longer healthy; called after requests have failed."""
        deadline = time.monotonic() + _RECOVERY_S
        while True:
            self.check_alive()
            if not self._workers.lost() and self._is_ready():
                return
            if time.monotonic() > deadline:
                raise self._failure(f"no longer healthy for {_RECOVERY_S:g} s")
            time.sleep(_POLL_S[1])

    def tail(self, count: int) -> list[str]:
        """Last non-empty lines of the log since the last start."""
        return [line for line in lines_at_ends(self._log, self._log_start) if line.strip()][-count:]

    def begin(self) -> None:
        """Starts the process; `start` waits until it is healthy."""
        if self.parts is None:
            self._ports = lease_ports(self._serve.host, 1 + self._engine.more_ports)
            port, *more = self._ports.ports
            self._serve = replace(self._serve, port=port, more_ports=tuple(more))
        else:
            self._ports = lease_ports(_ANY_ADDRESS, 2)
            port, meet = self._ports.ports
            self._serve = replace(self._serve, port=port, span=self.parts.span(meet))
        self._begun_at = time.monotonic()
        with pinned(self.cpus):
            self._start_process(self._ports.descriptors)

    def _start_process(self, ports: Sequence[int]) -> None:
        self.launch, self.start_id, self.startup_s = self._launch(self._serve.port), uuid4().hex, None
        self.pid = 0
        for name, text in self._engine.files(self._serve).items():
            write_text(self._serve.folder / name, text)
        with self._log.open("ab") as log:
            self._log_from = log.tell()
            log.write(f"=== {shlex.join(self.launch.command)}\n".encode())
        self._log_start = self._log.stat().st_size
        self._oom_kills = oom_kills()
        if self.parts is not None:
            self.parts.start(self._serve, {**self.launch.shell.passed, **self._variables})
        keep_open = [*self._keep_open, *ports]
        self.process = Supervised(
            self.launch.command, environment=self.launch.environment, log=self._log, keep_open=keep_open
        )
        self._workers = Workers(self._engine.worker_names, self.process.pid)

    def _wait_healthy(self) -> None:
        process, started = self.process, self._begun_at
        assert process is not None
        pause_s, report_at = _POLL_S[0], started + _REPORT_EVERY_S
        while True:
            process.wait(pause_s)
            self.check_alive()
            if self._is_ready() and _listens(pid := self._root(process.pid), self._serve.port):
                self.pid, self._workers = pid, Workers(self._engine.worker_names, pid)
                self.starts += 1
                self.startup_s = time.monotonic() - started
                return
            now = time.monotonic()
            if now - started > self._startup_timeout_s:
                why = self._engine.explain_failure(self._lines())
                text = f"not healthy within {self._startup_timeout_s:g} s" + (f": {why.message}" if why.message else "")
                raise CandidateFailed("never_healthy", text, [*why.lines, *self.tail(3)])
            if now > report_at:
                report_at = now + _REPORT_EVERY_S
                print(f"starting for {now - started:.0f} s: {''.join(self.tail(1))}", file=sys.stderr, flush=True)
            pause_s = min(pause_s * 1.5, _POLL_S[1])

    def _is_ready(self) -> bool:
        answer = ask("GET", self.base_url + self._engine.ready_path, _ANSWER_S)
        return answer is not None and answer.status == HTTPStatus.OK

    def _failure(self, ending: str, *, killed: bool = False) -> CandidateFailed | EnvironmentFault:
        """Why the server failed according to its log, and how it ended.

        `killed` says that a process of it ended as if killed; an engine may do that to itself after a failed start. A
        server that was healthy and then crashed counts as killed: how one of its workers ended is not known.
        """
        log = self._lines()
        if _BUS_ERROR.search(ending):
            log.append("Bus error")
        why = self._engine.explain_failure(log)
        killed = (killed and not why.has_cause) or self.pid != 0 or any(map(_NAMES_SIGNAL.search, log))
        if why.kind == "environment" and (why.has_cause or not killed):
            return EnvironmentFault(why, ending)
        reason = why.reason if why.reason and why.kind == "result" else "crashed"
        failed = Killed if killed and reason == "crashed" else CandidateFailed
        is_elsewhere = self.parts is not None and self.parts.kernel_killed()
        if reason == "crashed" and (is_elsewhere or oom_kills() > self._oom_kills):
            reason, failed = "out_of_memory", KilledForMemory
            ending += "; meanwhile the kernel killed a process because memory ran out"
        message = f"{why.message} ({ending})" if why.reason else f"{ending}; last log line: {why.message or 'none'}"
        return failed(reason, message, why.lines)

    def _launch(self, port: int) -> Launch:
        serve = replace(self._serve, port=port)
        shell = shell_variables(self._engine.variable_prefixes)
        node = self._engine.node_environment(serve.span) if serve.span else {}
        variables = {**node, **shell.passed, **self._variables, **self._engine.environment(serve)}
        return Launch(*self._enter(self._engine.command(serve), variables), shell)

    def _lines(self) -> list[str]:
        """The logs since the last start; of a very long one the first and the last part."""
        return [*lines_at_ends(self._log, self._log_start), *(self.parts.lines() if self.parts else [])]


def _listens(pid: int, port: int) -> bool:
    """Whether the process or a descendant listens on the port: another program's server would look healthy too."""
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return True
    except psutil.Error:
        pass
    return False
