"""Leases: a device serves one run at a time, on this machine, whoever starts it.

One lock file a device, held with `flock`: the lock goes when its last holder goes, so no crash leaves a device taken.
A server's warden holds it too (`Lease.descriptors`): a device is free only once its server is gone.
"""

from __future__ import annotations

import fcntl
import os
import random
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from servelab.devices import DEVICES, Device, DeviceKind
from servelab.errors import Outage

_POLL_S = 0.5


@dataclass(frozen=True)
class Lease:
    """Devices that are this run's alone."""

    devices: list[Device]
    environment: dict[str, str]
    """Environment variables that make an engine use them and no other."""
    descriptors: list[int]
    """The open locks; a process that inherits them holds the lease too."""

    kind: DeviceKind

    def part(self, count: int) -> Lease:
        """The first so many of the devices, held as long as all of them."""
        devices = self.devices[:count]
        return Lease(devices, self.kind.environment(devices), self.descriptors, self.kind)

    @property
    def names(self) -> str:
        """The devices by name, for reading."""
        return ", ".join(device.name for device in self.devices)


@contextmanager
def lease(kind_name: str, count: int) -> Iterator[Lease]:
    """Devices of a kind, waited for as long as it takes.

    Whoever gathers devices holds the kind's turn, so that two runs never wait for each other's half and a run that
    needs many is not starved by runs that need one. Raises `Outage` if the machine has fewer than `count`.
    """
    kind = DEVICES.get(kind_name)
    found = kind.find()
    if len(found) < count:
        raise Outage(f"this run needs {count} {kind_name} device(s), this machine offers it {len(found)}")
    folder = _runtime_folder()
    with ExitStack() as held:
        taken: dict[str, tuple[Device, int]] = {}
        said = False
        with _open(folder / f"{kind_name}.turn") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            while True:
                for device in found:
                    if device.key in taken or len(taken) == count:
                        continue
                    if (descriptor := _try(folder / f"{device.key}.lock", held)) is not None:
                        taken[device.key] = (device, descriptor)
                if len(taken) == count:
                    break
                if not said:
                    said = True
                    wanted = f"{count - len(taken)} more {kind_name} device(s)"
                    print(f"waiting for {wanted}: others are serving on them", file=sys.stderr, flush=True)
                time.sleep(_POLL_S * (1 + random.random()))  # noqa: S311
        devices = [device for device, _ in taken.values()]
        yield Lease(devices, kind.environment(devices), [descriptor for _, descriptor in taken.values()], kind)


def _try(path: Path, held: ExitStack) -> int | None:
    """Takes a lock if it is free and keeps it as long as `held`; its descriptor."""
    with ExitStack() as attempt:
        file = attempt.enter_context(_open(path))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        held.push(attempt.pop_all())
        return file


@contextmanager
def _open(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _runtime_folder() -> Path:
    """The user's own folder for locks; refuses one that somebody else could have put there."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "servelab" if base else Path(tempfile.gettempdir()) / f"servelab-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise Outage(f"cannot keep device locks in {folder}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise Outage(f"cannot keep device locks in {folder}: it is not this user's own folder")
    return folder
