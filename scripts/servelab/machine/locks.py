"""Locks of this machine that end with their holder, even if it is killed, and that no other user can take away.

A lock is an open file under `flock`: the kernel releases it when the last process that has it open is gone, so a crash
needs no clean-up. Each user has locks in a folder of their own, `servelab-locks-<uid>`, because the owner of a lock
file can move it away: two runs would then hold one lock. A lock is free only if no user holds it, so all users of the
machine share the locks.

The users' folders are in `/tmp`, which does not follow `TMPDIR` or `XDG_RUNTIME_DIR`: those differ between users,
sessions and batch jobs. `SERVELAB_LOCKS` names another place. It must be a folder where no other user can replace a
folder: this user's or root's, and writable by others only if root owns it and it has the sticky bit.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from servelab.core.errors import Outage
from servelab.core.result_lock import holder_text

PLACE_VARIABLE = "SERVELAB_LOCKS"
_PLACE = "/tmp"  # noqa: S108 (checked below)
_FOLDER = "servelab-locks-"
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES = 100


@dataclass(frozen=True)
class Lock:
    """A lock that is held while any process has its descriptor open."""

    descriptor: int
    path: Path

    def check(self) -> None:
        """Raises `Outage` if its file was moved or deleted: another run can then hold the same lock."""
        if not _is_at(self.descriptor, self.path):
            raise Outage(
                f"the lock {self.path} was moved or deleted while it was held, so another run may use the same device; "
                "find out what cleans that folder"
            )

    def release(self) -> None:
        """Releases it, unless another process also has it open."""
        os.close(self.descriptor)


def try_lock(name: str, *, shared: bool = False) -> Lock | None:
    """Takes a lock if no user holds it; None if one does.

    Several processes can hold a shared lock at once. `Outage` if the lock's file cannot be kept safely.
    """
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    lock = _take_own(name, operation)
    if lock is None:
        return None
    try:
        # Anyone who takes the lock at this moment tests ours in the same way, so that never both succeed.
        free = all(_is_free(descriptor, operation, path) for descriptor, path in _of_others(name))
    except BaseException:
        lock.release()
        raise
    if free:
        return lock
    lock.release()
    return None


@contextmanager
def waiting_lock(name: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds a lock, and waits for it as long as it takes; calls `on_wait` before it waits.

    It takes the lock's files of all users in one order, so that no two processes wait for each other.
    """
    with ExitStack() as held:
        own = _open_own(name)
        found = [(own.path, own.descriptor), *((path, descriptor) for descriptor, path in _of_others(name))]
        for _, descriptor in found:
            held.callback(os.close, descriptor)
        for path, descriptor in sorted(found):
            if not _flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, path):
                on_wait()
                _flock(descriptor, fcntl.LOCK_EX, path)
        _note_time(own.descriptor)
        yield


def holders(name: str) -> list[str]:
    """Who holds a lock, for messages: process, user and since when; empty if nobody does any more."""
    pids = _flock_pids()
    lock = _open_own(name)
    found = [(lock.descriptor, lock.path), *_of_others(name)]
    texts = []
    for descriptor, path in found:
        status = os.fstat(descriptor)
        if not _is_free(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, path):
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
            # a process that waits for all users' files holds those of others too: it counts by its own
            found_pids = pids.get(device, [None])
            of_user = [pid for pid in found_pids if _user_of(pid) in (None, status.st_uid) and pid != os.getpid()]
            texts += [holder_text(pid, status.st_uid, status.st_mtime) for pid in of_user]
    return texts


def _note_time(descriptor: int) -> None:
    """The time of a lock's file is that since when it is held."""
    with suppress(OSError):  # the file of another user, which is then the one to ask
        os.utime(descriptor)


def _flock_pids() -> dict[str, list[int | None]]:
    """`major:minor:inode` of files → processes that took locks on them, as the kernel lists them.

    A process of another container is not among them, and one that has ended is if a child of it holds the lock.
    """
    pids: dict[str, list[int | None]] = {}
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[4].isdigit():
                pids.setdefault(words[5], []).append(int(words[4]))
    return pids


def _user_of(pid: int | None) -> int | None:
    """A process's user; None if the process is unknown, has ended or is hidden."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def _take_own(name: str, operation: int) -> Lock | None:
    """This user's own file of a lock, under the lock; None if another process of this user holds it."""
    for _ in range(_TRIES):
        lock = _open_own(name)
        if not _flock(lock.descriptor, operation, lock.path):
            lock.release()
            return None
        if _is_at(lock.descriptor, lock.path):
            _note_time(lock.descriptor)
            return lock
        lock.release()  # something cleaned the folder between opening and locking
    raise Outage(f"cannot keep the lock {lock.path}: it is deleted again and again; find out what cleans that folder")


def _open_own(name: str) -> Lock:
    folder = _own_folder()
    path = folder / _file_name(name)
    try:
        descriptor = os.open(path, _OPEN | os.O_CREAT, 0o644)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)  # whatever the umask: other users also open it
    except OSError as error:
        raise Outage(f"cannot keep the lock {path}: {error.strerror}") from error
    return Lock(descriptor, path)


def _of_others(name: str) -> Iterator[tuple[int, Path]]:
    """The open files of a lock that other users have, and their paths. What is no file, or unreadable, is no lock."""
    own, place = _own_folder(), _place()
    try:
        with os.scandir(place) as found:
            entries = sorted(entry.name for entry in found if entry.name.startswith(_FOLDER))
    except OSError as error:
        raise _refused(place, error.strerror or str(error)) from error
    for entry in entries:
        if entry == own.name:
            continue
        with suppress(OSError):
            folder = os.open(place / entry, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                descriptor = os.open(_file_name(name), _OPEN, dir_fd=folder)
            finally:
                os.close(folder)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                yield descriptor, place / entry / _file_name(name)
            else:
                os.close(descriptor)


def _is_free(descriptor: int, operation: int, path: Path) -> bool:
    """Whether another user's file can be locked now; closes it."""
    try:
        return _flock(descriptor, operation, path)
    finally:
        os.close(descriptor)


def _flock(descriptor: int, operation: int, path: Path) -> bool:
    """Whether the lock was taken; `Outage` if the file system refuses locks."""
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Outage(f"cannot take the lock {path}: {error.strerror}") from error
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _file_name(name: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.lock"


def _own_folder() -> Path:
    """This user's folder of locks; `Outage` if it is another user's."""
    folder = _place() / f"{_FOLDER}{os.geteuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o755)  # whatever the umask
        status = folder.lstat()
    except OSError as error:
        raise _refused(folder, error.strerror or str(error)) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise _refused(folder, f"user {status.st_uid} put it there; ask them or root to remove it")
    if status.st_mode & 0o022:
        raise _refused(folder, f"other users can write to it: chmod go-w {folder}")
    return folder


def _place() -> Path:
    """Where the users' folders are; `Outage` if another user could replace a folder in it."""
    place = Path(os.environ.get(PLACE_VARIABLE) or _PLACE)
    try:
        with suppress(FileExistsError):
            place.mkdir()
            place.chmod(0o755)
        status = place.lstat()
    except OSError as error:
        raise _refused(place, error.strerror or str(error)) from error
    if not stat.S_ISDIR(status.st_mode):
        raise _refused(place, "it is no folder")
    if status.st_uid not in (0, os.geteuid()):
        raise _refused(place, f"it belongs to user {status.st_uid}, who could move locks away")
    if status.st_mode & 0o022 and not (status.st_uid == 0 and status.st_mode & stat.S_ISVTX):
        raise _refused(place, "other users can write to it, and it is not root's with the sticky bit")
    return place


def _refused(folder: Path, why: str) -> Outage:
    return Outage(
        f"cannot keep locks in {folder}: {why}. {PLACE_VARIABLE} names another place: /tmp, or a folder of your own"
    )
