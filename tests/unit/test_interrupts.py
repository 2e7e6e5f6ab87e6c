"""A lost workflow, a lost parent or a signal ends the block as an outage, after its clean-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import until

PROGRAM = """
import sys, time
from servelab.core import cli
from servelab.measure.interrupts import outage_on_interrupt
def main():
    with outage_on_interrupt():
        try:
            print("ready", flush=True)
            time.sleep(600)
        finally:
            time.sleep(0.1)
            print("cleaned", flush=True)
cli.run(main)
"""
OUTAGE = 75


def start(**variables):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal(number):
    with start() as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        said, error = process.communicate(timeout=30)
    assert (process.returncode, said) == (OUTAGE, "cleaned\n")
    assert error == f"error: interrupted by {number.name}\n"


def test_lost_workflow():
    workflow = subprocess.Popen(["sleep", "600"])
    with workflow, start(SERVELAB_COORDINATOR_PID=str(workflow.pid)) as process:
        assert process.stdout.readline() == "ready\n"
        workflow.kill()
        said, error = process.communicate(timeout=30)
    assert (process.returncode, said, error) == (OUTAGE, "cleaned\n", "error: the workflow is gone\n")


def test_lost_parent():
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {PROGRAM!r}]); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        assert parent.stdout.read() == b"cleaned\n"  # ends when the child, which holds the pipe too, has ended
        assert parent.stderr.read() == b"error: the process that started this run is gone\n"


STUCK = """\
import threading, sys
from servelab.workflow import coordination
coordination._EVERY_S = 0.1
coordination.end_with_parent()
print("ready", flush=True)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


def test_a_stuck_process_ends_with_its_parent_and_not_before():
    """The process of a job's workflow, also where its main thread never would."""
    script = f'"{sys.executable}" -c "$1" & echo $!; wait'
    parent = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", STUCK],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "scripts")},
    )
    child = psutil.Process(int(parent.stdout.readline()))
    assert parent.stdout.readline() == "ready\n"
    try:
        child.wait(1)
    except psutil.TimeoutExpired:
        assert child.is_running()
    parent.kill()
    parent.wait()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the end of the child", 20)
