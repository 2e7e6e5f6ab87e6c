"""CPU and memory: what this run uses, what others use meanwhile, and how long the run waited for CPUs that they had."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from servelab.measure.interrupts import COORDINATOR
from servelab.measure.telemetry import SOURCES, Reading, TelemetrySource, Watched

_SHORTEST_S = 0.5
"""The kernel counts CPU time in hundredths of a second: a share over a shorter time would be noise."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_Times = NDArray[np.float64]
"""Seconds of a CPU: all, busy, stolen."""


@dataclass
class _Group:
    """Processes that share a role, and their seconds so far."""

    cpu_s: float = 0.0
    waited_s: float = 0.0
    """Time that their threads were ready to run and had no CPU."""
    rss: int = 0


@dataclass
class _Moment:
    """All seconds so far."""

    stamp_s: float = field(default_factory=time.monotonic)
    cpus: dict[int, _Times] = field(default_factory=lambda: _cpu_times())
    server: _Group = field(default_factory=_Group)
    client: _Group = field(default_factory=_Group)
    siblings: _Group = field(default_factory=_Group)


class MachineUse(TelemetrySource):
    """Shares of CPU are percentages of all CPUs of the machine together, over the time since the previous reading."""

    name = "psutil"

    def __init__(self, watched: Watched) -> None:
        self._servers, self._pinned = watched.servers, watched.cpus
        coordinator = os.environ.get(COORDINATOR, "")
        self._coordinator = int(coordinator) if coordinator.isdigit() else None
        self._parents: dict[int, int] = {}
        self._roots: set[int] = set()
        self._processes: dict[int, psutil.Process] = {}
        self._waits: dict[tuple[int, str], float] | None = None
        """(pid, thread) → seconds that it has waited so far; None before the first reading."""
        self._waited = {"server": 0.0, "client": 0.0}
        self._before: _Moment | None = None

    def read(self) -> Iterator[Reading]:
        pids = {pid for _, pid in self._servers() if pid}  # 0: of another machine
        now, before = self._now(pids), self._before
        if before is None or now.stamp_s - before.stamp_s >= _SHORTEST_S:
            self._before = now
            if before is not None:
                yield from _shares(before, now)
                if self._waits:
                    yield from _waits(before, now, self._pinned, sees_server=bool(pids))
        memory = psutil.virtual_memory()
        yield Reading("memory_used_bytes", memory.total - memory.available)
        if now.server.rss:
            yield Reading("server_rss_bytes", now.server.rss)

    def _now(self, servers: set[int]) -> _Moment:
        """Seconds so far of all processes that matter, ended ones included."""
        own = {os.getpid(), *servers}
        self._find({*own, *([self._coordinator] if self._coordinator else [])})
        now, waits = _Moment(), dict[tuple[int, str], float]()
        for pid, process in list(self._processes.items()):
            role = "server" if self._is_below(pid, servers) else "client" if self._is_below(pid, own) else "siblings"
            group: _Group = getattr(now, role)
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    group.rss += process.memory_info().rss
            except psutil.Error:
                del self._processes[pid]
                continue
            group.cpu_s += times.user + times.system + times.children_user + times.children_system
            if role != "siblings":
                for thread, waited_s in _waited(pid):
                    waits[pid, thread] = waited_s
                    if self._waits is not None:  # a thread that is new has waited since then
                        self._waited[role] += max(0.0, waited_s - self._waits.get((pid, thread), 0.0))
        self._waits = waits
        now.server.waited_s, now.client.waited_s = self._waited["server"], self._waited["client"]
        return now

    def _find(self, roots: set[int]) -> None:
        """Updates the processes below the roots. A machine may run thousands, so each is only read once, and again when
        its parent has ended.
        """
        pids = set(psutil.pids())
        for pid in self._parents.keys() - pids:
            del self._parents[pid]
            self._processes.pop(pid, None)
        new = {pid for pid in pids if (parent := self._parents.get(pid)) is None or (parent and parent not in pids)}
        for pid in new:
            with contextlib.suppress(psutil.Error):
                self._parents[pid] = psutil.Process(pid).ppid()
        doubtful = new if roots == self._roots else self._parents.keys() - self._processes.keys()
        self._roots = roots
        for pid in doubtful:
            if self._is_below(pid, roots):
                with contextlib.suppress(psutil.Error):
                    self._processes[pid] = psutil.Process(pid)

    def _is_below(self, pid: int, roots: Collection[int]) -> bool:
        """Whether a process is one of the roots or a descendant of one."""
        while pid not in roots and pid in self._parents:
            pid = self._parents[pid]
        return pid in roots


def _waited(pid: int) -> Iterator[tuple[str, float]]:
    """Seconds that each thread of a process has been ready to run without a CPU; none if the kernel does not say."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):
                yield thread.name, int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def _cpu_times() -> dict[int, _Times]:
    """Seconds so far of each CPU, without those of guests, which count in `user` too."""
    found = {}
    for number, text in re.findall(r"^cpu(\d+) (.+)$", Path("/proc/stat").read_text(encoding="ascii"), re.MULTILINE):
        user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / _TICKS_PER_S for word in text.split()[:8])
        busy = user + nice + system + irq + softirq
        found[int(number)] = np.array([busy + idle + iowait + steal, busy, steal])
    return found


def _between(before: _Moment, now: _Moment, cpus: Collection[int]) -> _Times:
    """Seconds that passed on these CPUs."""
    passed = [now.cpus[cpu] - before.cpus[cpu] for cpu in cpus if cpu in now.cpus and cpu in before.cpus]
    total: _Times = np.array([np.zeros(3), *passed]).sum(axis=0)
    return total


def _shares(before: _Moment, now: _Moment) -> Iterator[Reading]:
    total, busy, steal = map(float, _between(before, now, now.cpus))
    percent = 100 / max(total, 0.01)
    own_s = max(0.0, now.server.cpu_s + now.client.cpu_s - before.server.cpu_s - before.client.cpu_s)
    yield Reading("machine_cpu_percent", percent * busy)
    yield Reading("own_cpu_percent", percent * own_s)
    yield Reading("others_cpu_percent", percent * max(0.0, busy - own_s))
    yield Reading("siblings_cpu_percent", percent * max(0.0, now.siblings.cpu_s - before.siblings.cpu_s))
    yield Reading("steal_cpu_percent", percent * steal)


def _waits(before: _Moment, now: _Moment, pinned: frozenset[int], *, sees_server: bool) -> Iterator[Reading]:
    """The time that the run's processes waited for CPUs, and the part of it that others caused."""
    seconds = now.stamp_s - before.stamp_s
    server, client = (
        _Group(max(0.0, after.cpu_s - earlier.cpu_s), after.waited_s - earlier.waited_s)
        for after, earlier in ((now.server, before.server), (now.client, before.client))
    )

    def percent(waited_s: float, of: _Group) -> float:
        """Of the time that all threads together ran or were ready to, or of the clock's if that is more."""
        return 100 * min(1.0, waited_s / max(seconds, of.cpu_s + of.waited_s))

    if sees_server:
        yield Reading("server_waited_percent", percent(server.waited_s, server))
    yield Reading("client_waited_percent", percent(client.waited_s, client))
    everything = frozenset(os.sched_getaffinity(0))
    both = _Group(server.cpu_s + client.cpu_s, server.waited_s + client.waited_s)
    if pinned:
        delayed_s = _delayed_s(before, now, pinned, server) + _delayed_s(before, now, everything - pinned, client)
    else:
        delayed_s = _delayed_s(before, now, everything, both)
    yield Reading("delayed_percent", percent(delayed_s, both))


def _delayed_s(before: _Moment, now: _Moment, cpus: Collection[int], group: _Group) -> float:
    """Seconds that a group lost on these CPUs to others.

    What it waited for its own processes is none of them, nor is what it waited beside idle CPUs: so long does it take
    to wake up there.
    """
    total, busy, steal = map(float, _between(before, now, cpus))
    others_s = max(0.0, busy - group.cpu_s)
    short_s = max(0.0, busy + group.waited_s - (total - steal))
    return min(group.waited_s, others_s, short_s) + steal


SOURCES.register(MachineUse.name, MachineUse)
