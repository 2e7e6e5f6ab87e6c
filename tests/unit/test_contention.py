"""Many processes want the same devices and ports, and are killed at any moment: never two holders, and none leaked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from device_tools import write_nvidia_smi
from patience import until

from servelab.machine.lease import lease, lease_ports

pytestmark = pytest.mark.slow
CONTENDER = Path(__file__).with_name("contender.py")
_FIRST = 22000 + 12 * (os.getpid() % 500)
POOL = range(_FIRST, _FIRST + 12)
"""Few ports, of nobody else: another test run on this machine has others."""


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Eight GPUs, and locks of its own."""
    write_nvidia_smi(tmp_path, 8)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SERVELAB_LOCKS", str(tmp_path / "locks"))
    for variable in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("pool", [range(0), POOL], ids=["devices", "ports"])
def test_nothing_ever_has_two_holders(pool, tmp_path):
    """Six of them are killed while they have something, and others take their place."""
    draw, seeds = Random(5), iter(range(99))

    def start() -> subprocess.Popen:
        return subprocess.Popen([sys.executable, str(CONTENDER), str(tmp_path), str(next(seeds)), *map(str, pool)])

    def holder(running: dict[int, subprocess.Popen]) -> subprocess.Popen | None:
        found = [path.read_text() for path in tmp_path.glob("has-*")]
        held = [running[int(text)] for text in found if text and int(text) in running]
        return draw.choice(held) if held else None

    running = {each.pid: each for each in (start() for _ in range(6))}
    try:
        for _ in range(6):
            victim = until(lambda: holder(running), "a holder")
            victim.send_signal(signal.SIGSTOP)
            os.waitpid(victim.pid, os.WUNTRACED)
            (tmp_path / f"dead-{victim.pid}").touch()  # before its locks can be free
            victim.kill()
            victim.wait()
            del running[victim.pid]
            new = start()
            running[new.pid] = new
        (tmp_path / "end").touch()
        assert [each.wait(300) for each in running.values()] == [0] * 6
    finally:
        for each in running.values():
            each.kill()
            each.wait()
    if pool:
        lease_ports("127.0.0.1", len(POOL), POOL).release()
    else:
        with lease("nvidia", 8):  # none is leaked
            pass
