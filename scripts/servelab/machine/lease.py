"""Leases: a device serves one run at a time on this machine, for all its users.

There is one lock per device (`servelab.machine.lease`). The kernel releases it with its last holder, so a crash leaves
no device reserved. The server's warden holds it too (`Lease.descriptors`): a device is free only when its server is
gone.

Devices that a batch system gave to a job are locked too. It costs nothing, and it separates two runs inside one job, a
run outside the job, and a server that a killed job left on a device.
"""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from pydantic import Field

from servelab.core.errors import Outage
from servelab.core.files import JsonPart
from servelab.core.identity import content_id
from servelab.core.processes import log_line
from servelab.core.result_lock import holder_text
from servelab.machine import allocations
from servelab.machine.allocations import Allocation
from servelab.machine.devices import DEVICES, Device, DeviceKind, neighbours

PORTS = range(20000, 22000)
"""Below the ports that Linux gives to outgoing connections (32768 and above), which may be in use at any moment."""
_LONGEST = 40
"""Last characters of a device's key that count: a socket's name has at most 107 bytes. A UUID is shorter."""


def try_lock(name: str) -> socket.socket | None:
    """Takes a lock; None if a process has it, a part of it, or what it is part of.

    `cpu/core-3` is part of `cpu`: neither is free while the other is held.
    """
    if (lock := _bound(_address(name))) is None:
        return None
    # Anyone who takes the other at this moment looks for ours too, so that never both succeed.
    own, listed = _address(name), Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    held = [f"\0{each}" for each in re.findall(r" @(servelab-lock-.*)", listed)]
    if any(own.startswith(f"{each}/") or each.startswith(f"{own}/") for each in held):
        lock.close()
        return None
    return lock


def holder(name: str) -> str | None:
    """The process that took a lock, with its user, for messages; None if it cannot be asked."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(_address(name))
            pid, user, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return holder_text(pid, user, psutil.Process(pid).create_time())
        except (OSError, psutil.Error, ValueError):
            return None


def _bound(address: str) -> socket.socket | None:
    """A socket with this name; None if the name is taken."""
    named = socket.socket(socket.AF_UNIX)
    try:
        named.bind(address)
        named.listen()  # so that `holder` can ask
    except OSError:
        named.close()
        return None
    return named


def _address(name: str) -> str:
    place = os.environ.get("SERVELAB_LOCKS")
    parts = [part[-_LONGEST:] for part in name.split("/", 1)]
    return f"\0servelab-lock-{content_id(place)[:8] if place else ''}-{'/'.join(parts)}"


@dataclass(frozen=True)
class PortLease:
    """Ports reserved for one server, so that two servers that start together never get the same."""

    ports: tuple[int, ...]
    _locks: tuple[socket.socket, ...]

    @property
    def descriptors(self) -> list[int]:
        """The open locks; a process that inherits them also holds the ports."""
        return [lock.fileno() for lock in self._locks]

    def release(self) -> None:
        """Releases the ports, unless another process still holds them."""
        for lock in self._locks:
            lock.close()


def lease_ports(host: str, count: int = 1, ports: Sequence[int] = PORTS) -> PortLease:
    """Reserves `count` ports that nothing listens on; `Outage` if there are fewer."""
    start = random.randrange(len(ports))  # noqa: S311 (another port each time, while old connections end)
    leased: dict[int, socket.socket] = {}
    for port in (*ports[start:], *ports[:start]):
        if len(leased) == count:
            break
        if (lock := _bound(f"\0servelab-port-{port}")) is not None:
            if _is_free(host, port):
                leased[port] = lock
            else:
                lock.close()
    lease = PortLease(tuple(leased), tuple(leased.values()))
    if len(leased) < count:
        lease.release()
        raise Outage(f"{len(leased)} of the {len(ports)} ports from {ports[0]} are free, the server needs {count}")
    return lease


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class PlacedDevice(JsonPart):
    """A reserved device."""

    index: str = Field(description="Its number in the environment variable that selects devices.")
    key: str = Field(description="Its name for locks, the same for every process of the machine.")


class Batch(JsonPart):
    """The devices and CPUs that a batch system gave."""

    system: str = Field(description="Batch system; `none` if there is none.")
    job_id: str | None = Field(description="Job, by the batch system's id.")
    node: str | None = Field(description="Node, by the batch system's name.")


class DevicePlacement(JsonPart):
    """The devices, and the CPUs beside them."""

    devices: list[PlacedDevice] = Field(description="The reserved devices.")
    server_cpus: list[int] | None = Field(description="CPUs that the server was pinned to; null for any.")
    client_cpus: list[int] | None = Field(description="CPUs reserved for load clients; null for any.")
    batch: Batch


@contextmanager
def pinned(cpus: frozenset[int]) -> Iterator[None]:
    """Pins this thread, and every process it starts inside the block, to these CPUs; an empty set pins nothing."""
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_POLL_S = 0.2
_MOST_HOLDERS = 8


@dataclass(frozen=True)
class Lease:
    """Devices reserved for one run."""

    devices: list[Device]
    locks: list[socket.socket]
    kind: DeviceKind
    allocation: Allocation
    client_cpus: frozenset[int] = frozenset()
    """CPUs reserved for load clients if the devices are CPUs; empty means any."""

    @property
    def descriptors(self) -> list[int]:
        """The open locks; a process that inherits them also holds the lease."""
        return [lock.fileno() for lock in self.locks]

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make an engine use these devices and no others."""
        return self.kind.environment(self.devices)

    @property
    def cpus(self) -> frozenset[int]:
        """CPUs that the server is pinned to if its devices are CPUs; empty means any."""
        return frozenset(cpu for device in self.devices for cpu in device.cpus)

    def part(self, count: int) -> Lease:
        """`count` of the devices, next to each other; they stay reserved as long as the whole lease."""
        return replace(self, devices=neighbours(self.devices, count))

    def split(self, parts: int) -> list[Lease]:
        """So many parts with devices of their own, neighbours together; a device that is the machine by its cores."""
        if len(self.devices) == 1 and parts > 1:
            return [replace(self, devices=[part]) for part in self.kind.divided(self.devices[0], parts)]
        left, found = self.devices, []
        for _ in range(parts):
            chosen = neighbours(left, len(self.devices) // parts)
            found.append(replace(self, devices=chosen))
            left = [device for device in left if device not in chosen]
        return found

    @property
    def names(self) -> str:
        """The devices' names, for messages."""
        return ", ".join(device.name for device in self.devices)

    def placement(self) -> DevicePlacement:
        """The chosen devices of this machine."""
        return DevicePlacement(
            devices=[PlacedDevice(index=device.index, key=device.key) for device in self.devices],
            server_cpus=sorted(self.cpus) or None,
            client_cpus=sorted(self.client_cpus) or None,
            batch=Batch(system=self.allocation.name, job_id=self.allocation.job_id(), node=self.allocation.node()),
        )


@contextmanager
def lease(
    kind_name: str, count: int, among: Callable[[Sequence[Device], str], Sequence[Device]] = lambda devices, _: devices
) -> Iterator[Lease]:
    """Reserves `count` devices of a kind, and waits as long as it takes; neighbours among those that are free.

    `among` chooses the devices that may be used from those of `giver`, before any wait, and may raise `ConfigError`.
    It never waits for closer devices. One run at a time collects devices of a kind. So two runs never each hold half of
    what the other needs, and runs that need one device do not starve a run that needs many. `Outage` if the machine or
    the job has too few devices.
    """
    kind, allocation = DEVICES.get(kind_name), allocations.current()
    found = among(allocation.given(kind, kind.find()), allocation.giver())
    if len(found) < count:
        raise Outage(f"this run needs {count} {kind_name} device(s), {allocation.giver()} has {len(found)} for it")
    held: dict[str, socket.socket] = {}
    try:
        with _turn(f"{found[0].within or kind_name}.turn"):
            devices = _collect(found, count, held)
        locks = [held[device.key] for device in devices]
        of_devices = {cpu for device in found for cpu in device.cpus}
        others = frozenset(os.sched_getaffinity(0) - of_devices) if of_devices else frozenset()
        yield Lease(kind.described(devices), locks, kind, allocation, others)
    finally:
        for lock in held.values():
            lock.close()


@contextmanager
def _turn(name: str) -> Iterator[None]:
    """Holds the lock of those who collect devices, and waits for it as long as it takes."""
    reported = False
    while (lock := try_lock(name)) is None:
        if not reported:
            reported = True
            log_line(f"waiting for runs that asked for devices earlier{_who([name])}")
        _pause()
    with lock:
        yield


def _collect(found: Sequence[Device], count: int, held: dict[str, socket.socket]) -> list[Device]:
    """Locks devices as they become free until there are enough; adds their locks to `held`, by device key."""
    reported = False
    while True:
        for device in found:
            if device.key not in held and (lock := try_lock(_lock_name(device))):
                held[device.key] = lock
        free = [device for device in found if device.key in held]
        if len(free) >= count:
            chosen = neighbours(free, count)
            for device in free:
                if device not in chosen:
                    held.pop(device.key).close()
            return chosen
        if not reported:
            reported = True
            missing = [name for d in found if d not in free for name in (_lock_name(d), d.within) if name]
            log_line(f"waiting for {count - len(free)} of {count} device(s): other runs use them{_who(missing)}")
        _pause()


def _lock_name(device: Device) -> str:
    return f"{device.within}/{device.key}" if device.within else device.key


def _pause() -> None:
    time.sleep(_POLL_S * (1 + random.random()))  # noqa: S311


def _who(names: Sequence[str]) -> str:
    """The holders of locks, each once, for the end of a message."""
    found = list(dict.fromkeys(text for name in names if (text := holder(name))))
    return f" ({'; '.join(found[:_MOST_HOLDERS])}{'; …' if found[_MOST_HOLDERS:] else ''})" if found else ""
