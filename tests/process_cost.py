"""What a command takes. A small process starts it: the peak memory of a process begins with that of its starter."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

_STARTER = """
import os, signal, sys
report, limit_s, *command = sys.argv[1:]
process = os.posix_spawnp(command[0], command, os.environ)
signal.signal(signal.SIGALRM, lambda *_: os.kill(process, signal.SIGKILL))
signal.alarm(int(limit_s))
_, status, used = os.wait4(process, 0)
with open(report, "w") as file:
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status), file=file)
"""


@dataclass(frozen=True)
class ProcessCost:
    """CPU time and peak memory of a process, and its exit status as of `subprocess`."""

    cpu_s: float
    peak_rss_mb: float
    returncode: int


def process_cost(command: list[str], limit_s: int = 600, **options: Any) -> ProcessCost:
    """What a command took; after `limit_s` it is killed. `options` are those of `subprocess.run`."""
    with tempfile.NamedTemporaryFile("r") as report:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _STARTER, report.name, str(limit_s), *command], check=True, **options
        )
        cpu_s, peak_rss_mb, returncode = report.read().split()
    return ProcessCost(float(cpu_s), float(peak_rss_mb), int(returncode))
