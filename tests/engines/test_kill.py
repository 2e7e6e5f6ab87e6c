"""However a run is ended, no process of it survives, its device is free, and nothing half-done is left."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from engines import jobs
from patience import PATIENCE_S, until

from servelab.machine.lease import lease

ROOT = Path(__file__).parents[2]
OUTAGE = 75


@dataclass
class Running:
    """A run whose server is under load, started by a shell as the workflow starts it."""

    shell: subprocess.Popen[bytes]
    coordinator: subprocess.Popen[bytes]
    measure: psutil.Process
    server_warden: psutil.Process
    tree: list[psutil.Process]
    """The measuring process and all below it."""
    output: Path


def below(process: psutil.Process, text: str) -> list[psutil.Process]:
    """The descendants whose command line has that text."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if text in " ".join(child.cmdline()):
                    found.append(child)
    return found


def kill_each(processes: Iterable[psutil.Process]) -> None:
    """Kills those that have not ended meanwhile, as some do when their parent is killed."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@contextlib.contextmanager
def running(installed, requests: Path, folder: Path, wait_for: str, count: int) -> Iterator[Running]:
    """A run, once that many of its processes have `wait_for` in their command line."""
    run = installed.run(installed.spec(), requests)
    output = jobs.folder(folder / "runs", run)
    command = jobs.command(folder / "runs", [run])
    coordinator = subprocess.Popen(["sleep", "600"])
    variables = os.environ | {"SERVELAB_COORDINATOR_PID": str(coordinator.pid)}
    log = folder / "log"
    with log.open("wb") as said:
        script = f"set -euo pipefail; {shlex.join(command)} 2>&1 | cat"
        shell = subprocess.Popen(["bash", "-c", script], cwd=ROOT, env=variables, stdout=said, stderr=said)
    tree: list[psutil.Process] = []
    try:
        root = psutil.Process(shell.pid)
        until(lambda: len(below(root, wait_for)) >= count or shell.poll() is not None, wait_for, 300)
        assert shell.poll() is None, log.read_text()
        measure = below(root, "scripts/measure.py")[0]
        warden = below(root, "warden.py")[0]
        tree = [measure, *measure.children(recursive=True)]
        yield Running(shell, coordinator, measure, warden, tree, output)
    finally:
        coordinator.kill()
        coordinator.wait()
        kill_each(tree)
        shell.kill()
        shell.wait()


def assert_ended(run: Running) -> None:
    """Nothing of the run is left: no process, no lock, no file."""

    def is_alive(process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    until(lambda: not any(map(is_alive, run.tree)), f"the end of {[process.pid for process in run.tree]}")
    with lease("cpu", 1):
        pass
    assert not run.output.exists()


WAYS: dict[str, Callable[[Running], object]] = {
    "SIGINT of measure": lambda run: run.measure.send_signal(signal.SIGINT),
    "SIGTERM of measure": lambda run: run.measure.send_signal(signal.SIGTERM),
    "SIGKILL of measure": lambda run: run.measure.kill(),
    "SIGKILL of its shell": lambda run: run.shell.kill(),
    "SIGKILL of the workflow": lambda run: run.coordinator.kill(),
    "SIGKILL of the server's warden": lambda run: run.server_warden.kill(),
}


RARE = ("SIGINT of measure", "SIGKILL of its shell")
"""Left to `make nightly`: tests/unit/test_interrupts.py has them without a server."""


@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] if way in RARE else []) for way in WAYS])
def test_killed_under_load(way, installed, endless_path, tmp_path):
    with running(installed, endless_path, tmp_path, "servelab.measure.load", 2) as run:
        assert len(run.tree) >= 5  # measure; the server and the load client, each with its warden
        WAYS[way](run)
        assert_ended(run)
        if way not in ("SIGKILL of measure", "SIGKILL of its shell"):
            assert run.shell.wait(PATIENCE_S) == OUTAGE
            assert not list(run.output.parent.iterdir())
