"""Locks of this machine that die with their holder, however it dies.

A lock is an open file under `flock`: the kernel lets it go when the last process that has it open is gone, so nothing
has to be cleaned up after a crash. The folder is one for all users of the machine: it follows neither `TMPDIR` nor
`XDG_RUNTIME_DIR`, which differ between users, sessions and batch jobs. `SERVELAB_LOCKS` names another one.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from servelab.errors import Outage

FOLDER_VARIABLE = "SERVELAB_LOCKS"
_FOLDER = "/tmp/servelab-locks"  # noqa: S108 (checked below)


def open_lock(name: str) -> int:
    """The open file of a lock, which is not taken by that; `Outage` where it cannot be kept safely."""
    path = _folder() / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.lock"
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Without O_CREAT first: kernels refuse it for another user's file in a shared folder (fs.protected_regular).
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(descriptor, 0o644)  # whatever the umask: other users open it too
            return descriptor
        return os.open(path, flags)
    except OSError as error:
        raise Outage(f"cannot keep the lock {path}: {error.strerror}") from error


def try_lock(name: str, *, shared: bool = False) -> int | None:
    """Takes a lock if it is free: a descriptor that holds it while any process has it open; None if it is taken.

    A shared lock goes with others that are shared.
    """
    descriptor = open_lock(name)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise Outage(f"cannot take the lock {name}: {error.strerror}") from error
    return descriptor


def _folder() -> Path:
    """The folder of locks; refuses one in which somebody else could replace a lock's file."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER)
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
        status = folder.lstat()
    except OSError as error:
        raise Outage(
            f"cannot keep locks in {folder}: {error.strerror}; name another folder by {FOLDER_VARIABLE}"
        ) from error
    if not stat.S_ISDIR(status.st_mode) or not (status.st_mode & stat.S_ISVTX or status.st_uid == os.getuid()):
        wrong = f"cannot keep locks in {folder}: it is neither this user's own folder nor one with the sticky bit"
        raise Outage(f"{wrong}; name another by {FOLDER_VARIABLE}")
    return folder
