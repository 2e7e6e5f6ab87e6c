"""Logs of a server or a client with lines of any length: what is read of them, in bounded memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from servelab.core.log_ends import CUT, MOST_BYTES, MOST_LINE, last_text, lines_at_ends

ROOT = Path(__file__).parents[2]
READ = """
import re, sys
from pathlib import Path
from servelab.core.log_ends import last_text, lines_at_ends
from servelab.engines.adapters import ENGINES
log = Path(sys.argv[1])
reason, lines = ENGINES.get("vllm").explain_failure(lines_at_ends(log))
last_text(log, 500)
# not ru_maxrss: a process begins with that of the one that started it
print(reason, int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""
MOST_MB = 300
"""Peak memory of the whole process, with the adapters loaded; a log of 1 GB read at once is 4 times that at least."""


def test_short_logs_are_read_whole(tmp_path):
    log = tmp_path / "log"
    assert lines_at_ends(log) == []
    log.write_bytes(b"before\none\r\n\ntwo \xff")
    assert lines_at_ends(log, len(b"before\n")) == ["one", "", "two \ufffd"]
    assert last_text(log, 5) == "two \ufffd"


def test_long_logs_are_read_at_both_ends(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(b"before\nfirst\n")
        file.seek(3 * MOST_BYTES)
        file.write(b"\n" + b"z" * 3 * MOST_LINE + b"\nlast\n")
    lines = lines_at_ends(log, len(b"before\n"))
    assert lines[0] == "first" and lines[-1] == "last"
    assert lines[-2] == "z" * MOST_LINE + CUT
    assert sum(map(len, lines)) < MOST_BYTES
    assert last_text(log, 6) == "z\nlast"


def read_in_a_process(log: Path) -> tuple[str, int]:
    """What explains the failure, and the peak memory of the process in MB."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(log)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        capture_output=True,
        text=True,
        check=True,
    )
    reason, peak_mb = done.stdout.split()
    return reason, int(peak_mb)


def one_line_of(log: Path, size_bytes: int) -> None:
    """A sparse file of one line, which ends with the reason of a failure on a line of its own."""
    with log.open("wb") as file:
        file.seek(size_bytes)
        file.write(b"\ntorch.OutOfMemoryError: CUDA out of memory\n")


def test_a_line_of_100_mb_takes_bounded_memory(tmp_path):
    one_line_of(tmp_path / "log", 100 << 20)
    reason, peak_mb = read_in_a_process(tmp_path / "log")
    assert reason == "out_of_memory" and peak_mb < MOST_MB


@pytest.mark.slow
@pytest.mark.long
def test_a_line_of_1_gb_takes_bounded_memory_and_time(tmp_path):
    """As a server's log, and as a log that is read for a study of others' figures."""
    one_line_of(tmp_path / "log", 1 << 30)
    reason, peak_mb = read_in_a_process(tmp_path / "log")
    assert reason == "out_of_memory" and peak_mb < MOST_MB
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, str(ROOT / "scripts/read_log.py"), str(tmp_path / "log")]
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    print(f"{used.ru_maxrss // 1024} MB, {used.ru_utime + used.ru_stime:.1f} s of CPU", before.ru_maxrss)
    assert used.ru_maxrss < MOST_MB * 1024
