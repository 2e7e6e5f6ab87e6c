"""Processes under a warden: nothing of them is left, whoever dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from servelab.core.errors import Outage
from servelab.core.processes import Supervised, stop_all, wait_any

# A child that leaves its parent, its session and its process group, and a parent that does not mind SIGTERM.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + ".part", "w").write(f"{os.getpid()}")
        os.replace(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Not even a zombie is left."""
    return not psutil.pid_exists(pid)


def is_dead(pid: int) -> bool:
    """A zombie may be left, for the process above this one to collect."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def start(tmp_path):
    """Starts Python code under a warden; what a test leaves running is ended."""

    def starting(code: str, *arguments: str, **options) -> Supervised:
        command = [sys.executable, "-c", code, *arguments]
        return Supervised(command, environment=os.environ, log=tmp_path / "log", **options)

    yield starting
    stop_all()


def escaped(path: Path) -> int:
    """The pid of the stubborn program's child, once it has escaped."""
    until(path.exists)
    return int(path.read_text())


def test_return_code_and_output(start, tmp_path):
    process = start("print('said'); raise SystemExit(3)")
    assert process.wait(30) == 3
    assert process.poll() == 3
    assert (tmp_path / "log").read_text() == "said\n"


def test_stop_is_orderly_first(start, tmp_path):
    orderly = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))"
    process = start(f"import signal, sys, time; {orderly}; print(flush=True); time.sleep(600)")
    until(lambda: (tmp_path / "log").read_text())
    process.stop()
    process.stop()
    assert process.poll() == 0


def test_stop_ends_what_escaped_and_ignores_sigterm(start, tmp_path):
    process = start(STUBBORN, str(tmp_path / "pid"), grace_s=0.2)
    pid = escaped(tmp_path / "pid")
    process.stop()
    assert process.poll() == -signal.SIGKILL
    assert is_gone(pid)
    assert is_gone(process.pid)


def test_exit_ends_what_was_left_behind(start, tmp_path):
    process = start(STUBBORN.replace('time.sleep(600)\n"""', ""), str(tmp_path / "pid"))
    pid = escaped(tmp_path / "pid")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    assert is_gone(pid)


def test_killed_warden_is_an_outage_and_leaves_nothing(start, tmp_path):
    process = start(STUBBORN, str(tmp_path / "pid"))
    pid = escaped(tmp_path / "pid")
    psutil.Process(process.pid).parent().kill()
    wait_any([process], 30)
    with pytest.raises(Outage):
        process.poll()
    assert is_gone(pid)
    assert is_gone(process.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_end_of_the_asker_ends_all(number, tmp_path):
    asker = f"""
import os, pathlib, signal, sys, time
from servelab.core.processes import Supervised
if {number} != signal.SIGKILL:
    signal.signal({number}, signal.SIG_DFL)  # a job started in the background inherits some as ignored
command = [sys.executable, "-c", {STUBBORN!r}, {str(tmp_path / "pid")!r}]
process = Supervised(command, environment=os.environ, log=pathlib.Path({str(tmp_path / "log")!r}), grace_s=0.2)
print(process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", asker], stdout=subprocess.PIPE, text=True) as running:
        server = int(running.stdout.readline())
        pid = escaped(tmp_path / "pid")
        running.send_signal(number)
    until(lambda: is_dead(pid) and is_dead(server))


def test_kept_descriptors_are_the_wardens_alone(start, tmp_path):
    with (tmp_path / "kept").open("w") as kept:
        process = start("import time; time.sleep(600)", keep_open=[kept.fileno()])
        opened = lambda pid: [file.path for file in psutil.Process(pid).open_files()]  # noqa: E731
        assert str(tmp_path / "kept") in opened(psutil.Process(process.pid).ppid())
        assert str(tmp_path / "kept") not in opened(process.pid)
