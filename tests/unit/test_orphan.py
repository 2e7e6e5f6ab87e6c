"""A job's workflow process ends with the job's script, also where its main thread never would."""

import subprocess
import sys
from pathlib import Path

import psutil
from patience import until

ROOT = Path(__file__).parents[2]
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
    script = f'"{sys.executable}" -c "$1" & echo $!; wait'
    parent = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", STUCK],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT / "scripts")},
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
