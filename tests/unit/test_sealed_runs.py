"""A run is complete while its files are those of its seal."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import made_run
import pytest
from made_results import write_run

from servelab.measure.sealed_runs import SealedRuns


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    """Three complete runs."""
    return [write_run(tmp_path / "runs", made_run.spec(protocol={"max_concurrency": n})) for n in (4, 8, 16)]


def look(runs: list[Path]) -> tuple[list[Path], list[str]]:
    """The runs that are complete, and the lines on those that are not."""
    lines: list[str] = []
    sealed = SealedRuns(runs[0].parent, report=lines.append)
    for _ in range(2):
        complete = [run for run in runs if sealed.is_complete(run.name)]
    return complete, lines


def test_a_change_is_found_though_size_and_time_are_put_back(runs):
    assert look(runs)[0] == runs
    file = runs[0] / "manifest.json"
    before = file.stat()
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    complete, lines = look(runs)
    assert complete == runs[1:] and [line.split()[1] for line in lines] == [runs[0].name]


def test_a_run_that_is_measured_again_is_complete_in_the_same_process(runs, tmp_path):
    (runs[0] / "requests.parquet").unlink()
    sealed = SealedRuns(tmp_path / "runs", tmp_path / "broken")
    assert not sealed.is_complete(runs[0].name)
    (mark,) = sealed.marks(runs[0].name)
    assert Path(mark).stat().st_mtime_ns > runs[0].stat().st_mtime_ns
    shutil.rmtree(runs[0])
    assert not sealed.is_complete(runs[0].name)
    write_run(tmp_path / "runs", made_run.spec(protocol={"max_concurrency": 4}))
    assert sealed.is_complete(runs[0].name)
