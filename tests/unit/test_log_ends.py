"""Logs of a server or a client with lines of any length: what is read of them, in bounded memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from process_cost import process_cost

from servelab.core.processes import CUT, MOST_BYTES, MOST_LINE, last_text, lines_at_ends

ROOT = Path(__file__).parents[2]
READ = """
import sys
from pathlib import Path
from servelab.core.processes import last_text, lines_at_ends
from servelab.engines.adapters import ENGINES
log = Path(sys.argv[1])
reason = ENGINES.get("vllm").explain_failure(lines_at_ends(log)).reason
last_text(log, 500)
print(reason)
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


def read_in_a_process(log: Path) -> tuple[str, float]:
    """What explains the failure, and the peak memory of the process in MB."""
    with log.with_name("reason").open("w+") as reason:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
        took = process_cost([sys.executable, "-c", READ, str(log)], env=environment, stdout=reason)
        reason.seek(0)
        assert took.returncode == 0
        return reason.read().strip(), took.peak_rss_mb


def one_line_of(log: Path, size_bytes: int) -> None:
    """A sparse file of one line, which ends with the reason of a failure on a line of its own."""
    with log.open("wb") as file:
        file.seek(size_bytes)
        file.write(b"\ntorch.OutOfMemoryError: CUDA out of memory\n")


def test_a_line_of_100_mb_takes_bounded_memory(tmp_path):
    one_line_of(tmp_path / "log", 100 << 20)
    reason, peak_mb = read_in_a_process(tmp_path / "log")
    assert reason == "out_of_memory" and peak_mb < MOST_MB
