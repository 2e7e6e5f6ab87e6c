"""Ports of a server, leased like devices, so that two servers that start together never get the same port.

Asking the kernel for a free port and releasing it leaves a moment in which another server can get it too. A lease is a
name in the kernel's abstract socket namespace, one per port. All users of the machine see it, it belongs to the same
network namespace as the port, and the kernel removes it with the last process that has it open.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from servelab.core.errors import Outage

PORTS = range(20000, 22000)
"""Below the ports that Linux gives to outgoing connections (32768 and above), which may be in use at any moment."""


@dataclass(frozen=True)
class PortLease:
    """Ports reserved for one server."""

    ports: tuple[int, ...]
    _names: tuple[socket.socket, ...]

    @property
    def descriptors(self) -> list[int]:
        """The open leases; a process that inherits them also holds the ports."""
        return [name.fileno() for name in self._names]

    def release(self) -> None:
        """Releases the ports, unless another process still holds them."""
        for name in self._names:
            name.close()


def lease_ports(host: str, count: int = 1, ports: Sequence[int] = PORTS) -> PortLease:
    """Reserves `count` ports that nothing listens on; `Outage` if there are fewer."""
    start = random.randrange(len(ports))  # noqa: S311 (another port each time, while old connections end)
    leased: dict[int, socket.socket] = {}
    for port in (*ports[start:], *ports[:start]):
        if len(leased) == count:
            break
        if (name := _claim(port)) is not None:
            if _is_free(host, port):
                leased[port] = name
            else:
                name.close()
    lease = PortLease(tuple(leased), tuple(leased.values()))
    if len(leased) < count:
        lease.release()
        raise Outage(f"{len(leased)} of the {len(ports)} ports from {ports[0]} are free, the server needs {count}")
    return lease


def _claim(port: int) -> socket.socket | None:
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0servelab-port-{port}")
    except OSError:
        name.close()
        return None
    return name


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
