"""One of many processes that want the same devices or ports; writes down what it has, as a witness beside the locks.

`contender.py <journal> <until> <seed> device <kind> <most at once>` or `… port <lowest> <highest>`: leases, again and
again, until the file `until` is there. Each line of the journal is written whole, in the order in which things happen.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from servelab.core.errors import Outage
from servelab.machine import lease as leases
from servelab.machine.devices import DEVICES
from servelab.machine.lease import lease_ports

leases._POLL_S = 0.002


def remember(kind_name: str) -> None:
    """Asks the vendor's tool once: what is tried here are the locks, and the devices stay the same."""
    kind = DEVICES.get(kind_name)
    found = kind.find()
    topology = kind.topology(found)
    of = type(kind)
    of.find = lambda self: list(found)
    of.topology = lambda self, devices: topology
    of.described = lambda self, devices: list(devices)


@contextmanager
def noted(journal: int, keys: list[str]) -> Iterator[None]:
    """Writes down that this process has these, and then that it has them no more."""
    os.write(journal, f"take {os.getpid()} {' '.join(keys)}\n".encode())
    yield
    os.write(journal, f"give {os.getpid()} {' '.join(keys)}\n".encode())


def devices(journal: int, kind: str, count: int, draw: Random) -> None:
    with leases.lease(kind, count) as leased, noted(journal, [device.key for device in leased.devices]):
        time.sleep(draw.random() * 0.01)


def ports(journal: int, pool: range, draw: Random) -> None:
    """Takes ports and serves on them, as a server does a moment after it was told its port."""
    try:
        leased = lease_ports("127.0.0.1", draw.randrange(1, 3), pool)
    except Outage:
        return  # others have them all
    with noted(journal, [str(port) for port in leased.ports]), ExitStack() as open_sockets:
        time.sleep(draw.random() * 0.005)
        for port in leased.ports:
            served = open_sockets.enter_context(socket.socket())
            served.bind(("127.0.0.1", port))
            served.listen()
        time.sleep(draw.random() * 0.005)
    leased.release()


def main() -> None:
    path, until, seed, what, first, second = sys.argv[1:]
    draw = Random(int(seed))
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if what == "device":
        remember(first)
    while not Path(until).exists():
        if what == "device":
            devices(journal, first, draw.randrange(1, int(second) + 1), draw)
        else:
            ports(journal, range(int(first), int(second)), draw)


if __name__ == "__main__":
    main()
