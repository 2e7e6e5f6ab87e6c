"""Leases: a device serves one run at a time, on this machine, whoever starts it.

One lock a device (`servelab.locks`), which goes with its last holder, so no crash leaves a device taken. A server's
warden holds it too (`Lease.descriptors`): a device is free only once its server is gone.

What a batch system gave a job is locked all the same: it costs nothing, and keeps apart two runs inside one job, a run
outside it, and what a killed job has left on a device.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from servelab import allocations
from servelab.allocations import Allocation
from servelab.devices import DEVICES, Device, DeviceKind
from servelab.errors import Outage
from servelab.locks import open_lock, try_lock
from servelab.topology import Topology, numa_node

_POLL_S = 0.2


@dataclass(frozen=True)
class Lease:
    """Devices that are this run's alone."""

    devices: list[Device]
    descriptors: list[int]
    """The open locks; a process that inherits them holds the lease too."""
    kind: DeviceKind
    allocation: Allocation
    topology: Topology
    client_cpus: frozenset[int] = frozenset()
    """CPUs that are kept for load clients, where the devices are CPUs; otherwise empty: any."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make an engine use the devices and no other."""
        return self.kind.environment(self.devices)

    @property
    def cpus(self) -> frozenset[int]:
        """CPUs that the server is kept on, where its devices are CPUs; otherwise empty: any."""
        return frozenset(cpu for device in self.devices for cpu in device.cpus)

    def part(self, count: int) -> Lease:
        """The closest so many of the devices, held as long as all of them."""
        return replace(self, devices=_closest(self.devices, count, self.topology))

    @property
    def names(self) -> str:
        """The devices by name, for reading."""
        return ", ".join(device.name for device in self.devices)

    def placement(self) -> dict[str, Any]:
        """Which of a machine's devices these are, as JSON: what differs between two runs of one specification."""
        index_of = {device.key: device.index for device in self.devices}
        ways = {
            "-".join(sorted((index_of[key] for key in pair), key=_natural)): word
            for pair, word in self.topology.ways.items()
            if pair <= index_of.keys()
        }
        return {
            "devices": [
                {
                    "index": device.index,
                    "key": device.key,
                    "cpus": (near := self.topology.cpus.get(device.key)),
                    "numa_node": numa_node(near),
                }
                for device in self.devices
            ],
            "ways": dict(sorted(ways.items())),
            "server_cpus": sorted(self.cpus) or None,
            "client_cpus": sorted(self.client_cpus) or None,
            "batch": {
                "system": self.allocation.name,
                "job_id": self.allocation.job_id(),
                "node": self.allocation.node(),
            },
        }


@contextmanager
def lease(kind_name: str, count: int) -> Iterator[Lease]:
    """Devices of a kind, waited for as long as it takes: neighbours if as many are free, but never a wait for better.

    Whoever gathers devices holds the kind's turn, so that two runs never wait for each other's half and a run that
    needs many is not starved by runs that need one. Raises `Outage` if the machine, or the job, has fewer than `count`.
    """
    kind, allocation = DEVICES.get(kind_name), allocations.current()
    found = allocation.given(kind, kind.find())
    if len(found) < count:
        raise Outage(f"this run needs {count} {kind_name} device(s), {allocation.giver()} offers it {len(found)}")
    topology = kind.topology(found)
    held: dict[str, list[int]] = {}
    try:
        with _turn(found[0].within or kind_name):
            devices = _gather(found, count, topology, held)
        descriptors = [descriptor for device in devices for descriptor in held[device.key]]
        yield Lease(devices, descriptors, kind, allocation, topology, _other_cpus(found))
    finally:
        for descriptors in held.values():
            _release(descriptors)


def _gather(found: Sequence[Device], count: int, topology: Topology, held: dict[str, list[int]]) -> list[Device]:
    """Takes devices as they become free, until there are enough; their locks are in `held`, by key."""
    said = False
    while True:
        for device in found:
            if device.key not in held and (descriptors := _take(device)):
                held[device.key] = descriptors
        free = [device for device in found if device.key in held]
        if len(free) >= count:
            chosen = _closest(free, count, topology)
            for device in free:
                if device not in chosen:
                    _release(held.pop(device.key))
            return chosen
        if not said:
            said = True
            _say(f"waiting for {count - len(free)} of {count} device(s): others are serving on them")
        time.sleep(_POLL_S * (1 + random.random()))  # noqa: S311


def _closest(devices: Sequence[Device], count: int, topology: Topology) -> list[Device]:
    chosen = topology.choose([device.key for device in devices], count)
    return [device for device in devices if device.key in chosen]


def _take(device: Device) -> list[int]:
    """The locks that a device needs; empty if one of them is taken."""
    whole = try_lock(device.within, shared=True) if device.within else None
    if device.within and whole is None:
        return []
    held = [] if whole is None else [whole]
    if (own := try_lock(device.key)) is None:
        _release(held)
        return []
    return [own, *held]


def _release(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


@contextmanager
def _turn(name: str) -> Iterator[None]:
    """The right to gather devices of a kind, one at a time."""
    turn = open_lock(f"{name}.turn")
    try:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for runs that asked for devices before")
            fcntl.flock(turn, fcntl.LOCK_EX)
        yield
    finally:
        os.close(turn)


def _other_cpus(found: Sequence[Device]) -> frozenset[int]:
    """CPUs of this process that no device is made of, where devices are CPUs."""
    cpus = {cpu for device in found for cpu in device.cpus}
    return frozenset(os.sched_getaffinity(0) - cpus) if cpus else frozenset()


def _natural(index: str) -> tuple[int, str]:
    return (int(index) if index.isdigit() else 0, index)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
