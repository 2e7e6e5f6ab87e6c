"""Locks that users of one machine share, and that none of them can take away from another; with real second users."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import IO

import pytest

from servelab.core.errors import Outage
from servelab.machine.lease import lease
from servelab.machine.locks import Lock, holders, try_lock, waiting_lock

ALICE, BOB, MALLORY = 60001, 60002, 60003
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@pytest.fixture
def place(monkeypatch) -> Iterator[Path]:
    """A folder as `/tmp` is: root's, writable by all, sticky."""
    folder = Path(tempfile.mkdtemp(prefix="servelab-test-locks-"))
    folder.chmod(0o1777)
    monkeypatch.setenv("SERVELAB_LOCKS", str(folder))
    yield folder
    shutil.rmtree(folder)


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
def running(user: int, action: Callable[[], object]) -> Iterator[str]:
    """The result of an action that another user has run; its locks are held until the block ends."""
    with started(user, action) as answer:
        yield answer.readline().rstrip("\n")


def take(name: str = "gpu-0", *, shared: bool = False) -> Callable[[], str]:
    """An action: takes a lock and keeps it."""
    kept: list[Lock | None] = []

    def action() -> str:
        kept.append(try_lock(name, shared=shared))
        return "held by another" if kept[-1] is None else "taken"

    return action


def once(user: int, action: Callable[[], object]) -> str:
    with running(user, action) as result:
        return result


@as_root
def test_two_users_share_a_lock(place):
    with running(ALICE, take()) as alice:
        assert alice == "taken"
        assert once(BOB, take()) == "held by another"
        assert once(BOB, take("gpu-1")) == "taken"
        assert try_lock("gpu-0") is None
    assert once(BOB, take()) == "taken"
    assert once(ALICE, take()) == "taken", "each user's file stays, and is free"
    assert {path.name for path in place.iterdir()} == {f"servelab-locks-{user}" for user in (0, ALICE, BOB)}


@as_root
def test_nobody_else_can_move_or_replace_a_held_lock(place):
    """The attack: another user moves a lock file away, and a second run takes a new one under the same name."""

    def attack() -> list[str]:
        tried = []
        folder = place / f"servelab-locks-{ALICE}"
        for attempt in (
            lambda: (folder / "gpu-0.lock").rename(folder / "away"),
            lambda: (folder / "gpu-0.lock").unlink(),
            lambda: folder.rename(place / "away"),
            lambda: shutil.rmtree(folder),
            lambda: (folder / "new.lock").touch(),
            lambda: folder.chmod(0o777),
        ):
            try:
                attempt()
                tried.append("done")
            except PermissionError:
                tried.append("refused")
        return tried

    with running(ALICE, take()) as alice:
        assert alice == "taken"
        assert once(MALLORY, attack) == str(["refused"] * 6)
        assert [once(user, take()) for user in (ALICE, BOB, MALLORY)] == ["held by another"] * 3


def _link_to_secret(folder: Path) -> None:
    (folder / "gpu-0.lock").symlink_to("/etc/shadow")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "gpu-0.lock")


def _folder(folder: Path) -> None:
    (folder / "gpu-0.lock").mkdir()


def _unreadable(folder: Path) -> None:
    (folder / "gpu-0.lock").touch(mode=0o000)


def _closed_folder(folder: Path) -> None:
    (folder / "gpu-0.lock").touch()
    folder.chmod(0o700)


@as_root
@pytest.mark.parametrize("trap", [_link_to_secret, _pipe, _folder, _unreadable, _closed_folder])
def test_a_trap_in_another_users_folder_is_no_lock(trap, place):
    def set_trap() -> str:
        folder = place / f"servelab-locks-{MALLORY}"
        folder.mkdir()
        trap(folder)
        return "set"

    assert once(MALLORY, set_trap) == "set"
    with running(ALICE, take()) as alice:
        assert alice == "taken"
        assert once(BOB, take()) == "held by another"


@as_root
@pytest.mark.parametrize("link", [False, True])
def test_a_folder_put_there_for_another_user_is_refused_with_the_name_of_who_did(link, place):
    own = place / f"servelab-locks-{ALICE}"
    elsewhere = place / "elsewhere"
    assert once(MALLORY, lambda: elsewhere.mkdir() or (own.symlink_to(elsewhere) if link else own.mkdir())) == "None"
    answer = once(ALICE, take())
    assert answer.startswith(f"Outage: cannot keep locks in {own}: user {MALLORY} put it there; ask them or root")
    assert not list(elsewhere.iterdir())


@as_root
@pytest.mark.parametrize(
    ("owner", "mode", "says"),
    [
        (MALLORY, 0o1777, f"belongs to user {MALLORY}"),
        (MALLORY, 0o755, f"belongs to user {MALLORY}"),
        (0, 0o777, "other users can write to it"),
        (0, 0o775, "other users can write to it"),
        (ALICE, 0o1777, "other users can write to it"),
        (ALICE, 0o770, "other users can write to it"),
    ],
)
def test_a_place_where_others_could_replace_locks_is_refused(owner, mode, says, place):
    os.chown(place, owner, owner)
    place.chmod(mode)
    answer = once(ALICE, take())
    assert answer.startswith(f"Outage: cannot keep locks in {place}: ") and says in answer
    assert "SERVELAB_LOCKS names another" in answer


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_lock_that_is_gone_while_it_is_held_is_an_outage(how, tmp_path, monkeypatch):
    """Before each load and after it, a run makes sure that it still has its devices for itself."""
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path))
    with lease("cpu", 1) as leased:
        leased.check()
        file = leased.locks[0].path
        if how == "moved":
            file.rename(tmp_path / "away")
        else:
            file.unlink()
        if how == "replaced":
            file.touch()
        with pytest.raises(Outage, match="was moved or deleted while it was held"):
            leased.check()


@as_root
def test_three_users_never_hold_one_lock_at_once(place):
    """A witness beside the locks: a file that only one can make."""
    witness, until = place / "witness", time.monotonic() + 3

    def contend(seed: int) -> Callable[[], str]:
        def action() -> str:
            draw, taken, waited = Random(seed), 0, 0
            while time.monotonic() < until:
                if draw.random() < 0.5:
                    with waiting_lock("turn", lambda: None):
                        os.close(os.open(f"{witness}-turn", os.O_CREAT | os.O_EXCL))
                        time.sleep(draw.random() / 1000)
                        Path(f"{witness}-turn").unlink()
                        waited += 1
                elif lock := try_lock("gpu-0"):
                    os.close(os.open(witness, os.O_CREAT | os.O_EXCL))
                    time.sleep(draw.random() / 1000)
                    witness.unlink()
                    lock.release()
                    taken += 1
            return f"{taken > 0} {waited > 0}"

        return action

    with ExitStack() as stack:
        users = enumerate([ALICE, ALICE, BOB, BOB, MALLORY])
        answers = [stack.enter_context(started(user, contend(seed))) for seed, user in users]
        assert [answer.readline() for answer in answers] == ["True True\n"] * 5


@as_root
def test_anyone_who_waits_learns_whose_the_lock_is(place):
    """Process, user and time, of a device's lock and of the turn, which is held through all users' files."""

    def hold() -> str:
        kept.append(try_lock("gpu-0"))
        stack.enter_context(waiting_lock("turn", lambda: None))
        return str(os.getpid())

    kept: list[Lock | None] = []
    stack = ExitStack()
    assert holders("gpu-0") == []
    try_lock("gpu-0").release()  # type: ignore[union-attr]
    with waiting_lock("turn", lambda: None):
        assert holders("turn") == []  # this process needs not ask itself
    with started(ALICE, hold) as answer:
        pid = answer.readline().strip()
        now = time.strftime("%Y-%m-%d %H:", time.gmtime())
        for name in ("gpu-0", "turn"):
            (text,) = holders(name)
            assert text.startswith(f"process {pid} of user {ALICE} since {now}")
    assert holders("gpu-0") == holders("turn") == []


@as_root
def test_a_run_that_waits_for_devices_names_their_holder(place, capfd):
    with started(BOB, lambda: try_lock("cpu") and os.getpid()) as answer:
        pid = answer.readline().strip()
        held = try_lock("cpu")
        assert held is None
        with pytest.raises(TimeoutError), lease_within(1, "cpu"):
            pass
    assert f"other runs use them (process {pid} of user {BOB} since " in capfd.readouterr().err


@contextmanager
def lease_within(seconds: int, kind: str) -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        with lease(kind, 1):
            yield
    finally:
        signal.alarm(0)
