"""A lock per result across processes: one process makes the result, the others wait or skip it.

A claim is an `flock` on a file beside the result; the kernel releases it when its process ends. Nodes see each other's
claims if their file system shares locks (NFS, GPFS, CephFS, Lustre mounted with `flock`). If it does not, two processes
may make one result, each under its own temporary name, and the first to finish wins (`files.move_folder`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from servelab.core.errors import Outage


def holder_text(pid: int | None, user: int, since_unix_s: float) -> str:
    """A process, its user by name and since when it holds something; the pid may be unknown."""
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"user {user}"
    since = datetime.fromtimestamp(since_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{'a process' if pid is None else f'process {pid}'} of {name} since {since}"


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def claim(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the claim on `path`, which need not exist.

    Raises `Outage` if the lock file cannot be written or, without `wait`, if another process holds the claim.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _take(lock, wait)
        os.ftruncate(descriptor, 0)
        holder = holder_text(os.getpid(), os.geteuid(), time.time())
        os.write(descriptor, f"{holder} on {os.uname().nodename}".encode())
    except OSError as error:
        raise Outage(f"{lock}: cannot be claimed: {error.strerror}") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def make_if_missing(path: Path, make: Callable[[], object]) -> None:
    """Calls `make` unless `path` exists; if another process is making it, waits for that one."""
    with claim(path):
        if not path.exists():
            make()


def is_claimed(path: Path) -> bool:
    """Whether a process holds the claim on `path`, as far as this node can see."""
    try:
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
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
    """The open, locked lock file. Its holder removes it, so a locked file that has lost its name is opened again."""
    reported = False
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        with suppress(PermissionError):  # another user's
            os.fchmod(descriptor, 0o600 | (lock.parent.stat().st_mode & 0o060))  # who may write there may take it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 300, 0).decode(errors="replace") or "another process"
            if not wait:
                os.close(descriptor)
                raise Outage(f"{holder} is working on this") from None
            if not reported:
                print(f"waiting for {holder}, which is working on this", file=sys.stderr, flush=True)
                reported = True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except BaseException:  # a signal ends the wait
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
