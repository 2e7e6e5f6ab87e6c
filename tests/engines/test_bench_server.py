"""`servelab bench` on real servers that already run."""

import subprocess
import sys
from pathlib import Path

import pytest

from servelab.bench.bench_result import Bench

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_real_server_is_measured_by_its_address(installed, tmp_path):
    server = installed.server(tmp_path / "server.log")
    server.reset_caches()
    words = ("--concurrency", "1", "4", "--visits", "2", "--requests", "8", "--input-tokens", "40")
    try:
        done = subprocess.run(
            [
                *(sys.executable, "scripts/bench_server.py", server.base_url, "--output", str(tmp_path / "bench")),
                *(*words, "--output-tokens", "12", "--timeout", "600"),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    found = Bench.read(tmp_path / "bench/bench.json")
    assert found.load.is_length_forced and found.load.mean_output_tokens == 12
    assert found.load.mean_input_tokens == pytest.approx(40, rel=0.15)
    assert found.asked.longest_tokens
    one, four = found.points
    assert (one.failed, four.failed) == (0, 0)
    assert one.validity != "invalid" and four.validity != "invalid", one.failures + four.failures
    assert len(done.stdout.splitlines()) == 5
