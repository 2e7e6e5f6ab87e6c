"""Many processes want the same devices and ports, and are killed at any moment: never two holders, and none leaked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from device_tools import write_nvidia_smi

from servelab.machine.lease import lease, lease_ports

pytestmark = pytest.mark.slow

CONTENDER = Path(__file__).with_name("contender.py")
PATIENCE_S = 300.0
"""After so long a test gives up: something waits for ever."""
_FIRST = 22000 + 12 * (os.getpid() % 500)
POOL = range(_FIRST, _FIRST + 12)
"""Few ports, of nobody else: another test run on this machine has others."""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Eight devices of each kind, and locks of its own."""
    write_nvidia_smi(tmp_path, 8, "nvidia-topo-8-v100.txt")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path / "locks"))
    for variable in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)


class Crowd:
    """Contenders that are replaced when they are killed."""

    def __init__(self, folder: Path, *wants: tuple[str, ...]) -> None:
        self.journal, self._until, self._seed = folder / "journal", folder / "until", 0
        self._running = {self._start(want): want for want in wants}

    def _start(self, want: tuple[str, ...]) -> subprocess.Popen[bytes]:
        self._seed += 1
        command = [sys.executable, str(CONTENDER), str(self.journal), str(self._until), str(self._seed), *want]
        return subprocess.Popen(command)

    def kill_one(self, draw: Random) -> bool:
        """Kills one, every other time one that has something; the journal says so before its locks can be free, and
        after its own last line.

        Whether it had something at that moment.
        """
        last = {who: what for what, who, *_ in self.lines()}
        holding = [process for process in self._running if last.get(str(process.pid)) == "take"]
        victim = draw.choice((draw.random() < 0.5 and holding) or list(self._running))
        os.kill(victim.pid, signal.SIGSTOP)
        _, status = os.waitpid(victim.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "a contender failed"
        own = [what for what, who, *_ in self.lines() if who == str(victim.pid)]
        with self.journal.open("a") as journal:
            journal.write(f"dead {victim.pid}\n")
        victim.kill()
        victim.wait()
        want = self._running.pop(victim)
        self._running[self._start(want)] = want
        return own[-1:] == ["take"]

    def lines(self) -> list[list[str]]:
        """What was written down so far."""
        return [line.split() for line in self.journal.read_text().splitlines()] if self.journal.exists() else []

    def end(self) -> None:
        """Lets all finish what they are at; none of them may have failed."""
        self._until.touch()
        assert [process.wait(PATIENCE_S) for process in self._running] == [0] * len(self._running)

    def stop(self) -> None:
        """Ends what is left after a failed test."""
        for process in self._running:
            process.kill()
            process.wait()


@contextmanager
def crowd(folder: Path, *wants: tuple[str, ...]) -> Iterator[Crowd]:
    """Contenders until the block ends."""
    contenders = Crowd(folder, *wants)
    try:
        yield contenders
        contenders.end()
    finally:
        contenders.stop()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "somebody waits for ever"
        time.sleep(0.01)


def check(lines: list[list[str]]) -> Counter[str]:
    """How often each thing was taken, if nobody ever took what another had."""
    holder: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for what, who, *keys in lines:
        if what == "take":
            assert not {key: holder[key] for key in keys if key in holder}, f"{who} took what another has"
            holder |= dict.fromkeys(keys, who)
            taken.update(keys)
        else:
            holder = {key: other for key, other in holder.items() if other != who}
    assert holder == {}
    return taken


def count(lines: list[list[str]], what: str) -> int:
    return sum(line[0] == what for line in lines)


def kill_holders(contenders: Crowd, draw: Random) -> None:
    """Kills contenders at any moment, until several of them had something."""
    killed = 0
    while killed < 6:
        before = count(contenders.lines(), "take")
        until(lambda before=before: count(contenders.lines(), "take") > before + 6)
        time.sleep(draw.random() * 0.02)
        killed += contenders.kill_one(draw)


def test_a_device_never_has_two_holders(tmp_path):
    draw = Random(5)
    with crowd(tmp_path, *[("device", "nvidia", "5")] * 6) as contenders:
        kill_holders(contenders, draw)
    taken = check(contenders.lines())
    assert len(taken) == 8  # all of them were of use
    with lease("nvidia", 8):  # none is leaked
        pass


def test_a_port_never_has_two_servers(tmp_path):
    draw = Random(6)
    with crowd(tmp_path, *[("port", str(POOL.start), str(POOL.stop))] * 5) as contenders:
        kill_holders(contenders, draw)
    assert set(map(int, check(contenders.lines()))) <= set(POOL)
    lease_ports("127.0.0.1", len(POOL), POOL).release()
