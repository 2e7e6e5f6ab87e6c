"""Locks of this machine, for devices and ports: names that one process can have at a time.

A lock is a socket with a name in the kernel's abstract namespace. All users of the machine see the name, nobody can
take it from its holder, and the kernel removes it with the last process that has the socket open, so a crash needs no
clean-up. A container sees the locks of its host if it uses the host's network. `SERVELAB_LOCKS` names a separate set
of device locks, as tests need.
"""

from __future__ import annotations

import os
import random
import re
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from servelab.core.errors import Outage
from servelab.core.identity import content_id
from servelab.core.result_lock import holder_text

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
    if any(_overlap(_address(name), other) for other in _held()):
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


def _held() -> list[str]:
    """Addresses of all locks that are held, as the kernel lists them."""
    listed = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    return [f"\0{name}" for name in re.findall(r" @(servelab-lock-.*)", listed)]


def _overlap(one: str, other: str) -> bool:
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")


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
