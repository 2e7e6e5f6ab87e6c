"""CPU and memory, read with psutil: what this run uses, and what others on the machine use meanwhile."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import psutil

from servelab.measure.telemetry import SOURCES, Reading, TelemetrySource, Watched

_SHORTEST_S = 0.5
"""The kernel counts CPU time in hundredths of a second: a share over a shorter time would be noise."""


class _CpuTimes(NamedTuple):
    """Seconds of CPU time so far, over all CPUs."""

    stamp_s: float
    capacity: float
    busy: float
    steal: float
    own: float


class MachineUse(TelemetrySource):
    """CPU shares are percentages of all CPUs of the machine together, over the time since the previous reading."""

    name = "psutil"
    metrics: ClassVar = {
        "machine_cpu_percent": "CPU time in use by all processes, without steal",
        "own_cpu_percent": "CPU time of the server, the client and this process, with all their descendants",
        "others_cpu_percent": "`machine_cpu_percent` − `own_cpu_percent`: others disturb the measurement",
        "steal_cpu_percent": "CPU time that the hypervisor gave to other machines",
        "memory_used_bytes": "Memory that is not available to a new process: total − available",
        "server_rss_bytes": "Resident memory of the server's processes; shared memory counts in each",
        "load_average_1m": "Processes that run or wait to run, mean over the last minute",
    }

    def __init__(self, watched: Watched) -> None:
        self._server = watched.server
        self._parents: dict[int, int] = {}
        self._roots: set[int] = set()
        self._own: dict[int, psutil.Process] = {}
        self._before: _CpuTimes | None = None

    def read(self) -> Iterator[Reading]:
        """See `TelemetrySource.read`."""
        server = self._server()
        server_pid = server[1] or None if server else None  # 0: of another machine
        own_s, rss = self._use(server_pid)
        now, before = _times(own_s), self._before
        if before is None or now.stamp_s - before.stamp_s >= _SHORTEST_S:
            self._before = now
            if before is not None:
                yield from _shares(before, now)
        memory = psutil.virtual_memory()
        yield Reading("memory_used_bytes", memory.total - memory.available)
        yield Reading("load_average_1m", os.getloadavg()[0])
        if rss:
            yield Reading("server_rss_bytes", rss)

    def _use(self, server_pid: int | None) -> tuple[float, int]:
        """CPU seconds so far of all own processes, ended ones included; resident bytes of the server's."""
        self._find({os.getpid(), *([server_pid] if server_pid else [])})
        seconds, rss = 0.0, 0
        for pid, process in list(self._own.items()):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    rss += process.memory_info().rss if self._is_below(pid, server_pid) else 0
            except psutil.Error:
                del self._own[pid]
                continue
            seconds += times.user + times.system + times.children_user + times.children_system
        return seconds, rss

    def _find(self, roots: set[int]) -> None:
        """Updates the own processes. A machine may run thousands, so each is only read once, and again when its parent
        has ended.
        """
        pids = set(psutil.pids())
        for pid in self._parents.keys() - pids:
            del self._parents[pid]
            self._own.pop(pid, None)
        new = {pid for pid in pids if (parent := self._parents.get(pid)) is None or (parent and parent not in pids)}
        for pid in new:
            with contextlib.suppress(psutil.Error):
                self._parents[pid] = psutil.Process(pid).ppid()
        doubtful = new if roots == self._roots else self._parents.keys() - self._own.keys()
        self._roots = roots
        for pid in doubtful:
            if any(self._is_below(pid, root) for root in roots):
                with contextlib.suppress(psutil.Error):
                    self._own[pid] = psutil.Process(pid)

    def _is_below(self, pid: int, root: int | None) -> bool:
        """Whether a process is `root` or a descendant of it."""
        while pid != root and pid in self._parents:
            pid = self._parents[pid]
        return pid == root


def _times(own_s: float) -> _CpuTimes:
    cpu = psutil.cpu_times()
    busy = cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq
    return _CpuTimes(time.monotonic(), busy + cpu.idle + cpu.iowait + cpu.steal, busy, cpu.steal, own_s)


def _shares(before: _CpuTimes, now: _CpuTimes) -> Iterator[Reading]:
    percent = 100 / max(now.capacity - before.capacity, 0.01)
    machine, own = percent * (now.busy - before.busy), percent * max(0.0, now.own - before.own)
    yield Reading("machine_cpu_percent", machine)
    yield Reading("own_cpu_percent", own)
    yield Reading("others_cpu_percent", max(0.0, machine - own))
    yield Reading("steal_cpu_percent", percent * (now.steal - before.steal))


SOURCES.register(MachineUse.name, MachineUse)
