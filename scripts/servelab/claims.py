"""Claims: of all who would make one thing in a results folder, one makes it and the others wait or give way.

A claim is a lock (`flock`) on a file beside the thing; it goes with its holder, however that ends. Nodes see each
other's claims where their file system shares locks (NFS, GPFS, CephFS, Lustre mounted with `flock`). Where it does not,
two may work at once; then nothing is mixed either, since each works under a name of its own and the first to finish
wins (`files.move_folder`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servelab.errors import Outage

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def claim(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the claim on `path`, which need not exist.

    Raises `Outage` where the place for the claim cannot be written and, unless it is to `wait`, where somebody has it.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _take(lock, wait)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode())
    except OSError as error:
        raise Outage(f"{lock}: cannot be claimed: {error.strerror}") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def once(path: Path, make: Callable[[], object]) -> None:
    """Calls `make`, which makes a file that is named by its content, unless it is there; waits for others at that."""
    with claim(path):
        if not path.exists():
            make()


def is_claimed(path: Path) -> bool:
    """Whether somebody holds the claim on `path`, as far as this node can see."""
    try:
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _take(lock: Path, wait: bool) -> int:
    """The open file of the lock, locked; the holder removes it, so what was locked may be no file any more."""
    said = False
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            if not wait:
                os.close(descriptor)
                raise Outage(f"{holder} is at work on this") from None
            if not said:
                print(f"waiting for {holder}, which is at work on this", file=sys.stderr, flush=True)
                said = True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except BaseException:  # a signal ends the waiting
                os.close(descriptor)
                raise
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
        try:
            if lock.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                os.close(descriptor)
                raise
        os.close(descriptor)
