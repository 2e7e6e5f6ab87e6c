"""Locks that all users of one machine share; with real second users."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from servelab.machine.lease import holder, try_lock

ALICE, BOB = 60001, 60002
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Locks of its own."""
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path))


@contextmanager
def started(user: int, action: Callable[[], object]) -> Iterator[IO[str]]:
    """An action that another user runs; gives a line, its result or error. It keeps its locks until the block ends."""
    result, told = os.pipe()
    until, ended = os.pipe()
    child = os.fork()
    if not child:
        os.close(ended)
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            text = str(action())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(told, text.encode()[:4000] + b"\n")
        os.read(until, 1)
        os._exit(0)
    os.close(told)
    os.close(until)
    try:
        with os.fdopen(result) as answer:
            yield answer
    finally:
        os.close(ended)
        os.waitpid(child, 0)


@contextmanager
def holding(user: int, name: str) -> Iterator[str]:
    """Another user who takes a lock: `taken` or `held by another`."""
    kept = []

    def action() -> str:
        kept.append(try_lock(name))
        return "held by another" if kept[-1] is None else "taken"

    with started(user, action) as answer:
        yield answer.readline().strip()


@as_root
def test_two_users_share_a_lock_and_who_waits_learns_whose_it_is():
    assert holder("gpu-0") is None
    with holding(ALICE, "gpu-0") as alice:
        assert alice == "taken"
        with holding(BOB, "gpu-0") as bob, holding(BOB, "gpu-1") as other:
            assert (bob, other) == ("held by another", "taken")
        assert try_lock("gpu-0") is None
        text = holder("gpu-0")
        assert text and text.startswith("process ") and f" of user {ALICE} since " in text
    with holding(BOB, "gpu-0") as bob:
        assert bob == "taken"


@pytest.mark.parametrize(
    ("one", "other"), [("cpu", "cpu/core-1"), ("GPU-" + "a" * 36, f"GPU-{'a' * 36}/MIG-{'b' * 36}")]
)
def test_a_whole_and_its_parts_exclude_each_other(one, other):
    part = other[:-1] + "x"
    for first, second in ((one, other), (other, one)):
        lock = try_lock(first)
        assert lock and try_lock(second) is None
        lock.close()
    locks = [try_lock(other), try_lock(part), try_lock(f"{one}0")]
    assert all(locks)
    for lock in locks:
        lock.close()


def test_a_lock_ends_with_the_last_process_that_has_it():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with try_lock("gpu-0") as lock:
        server = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fileno()])
    assert try_lock("gpu-0") is None
    server.kill()
    server.wait()
    with try_lock("gpu-0"):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
