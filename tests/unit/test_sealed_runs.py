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


@pytest.mark.parametrize("change", ["in place", "replaced", "exchanged", "removed", "added", "linked"])
def test_a_change_is_found(runs, change):
    """Its size and its time of modification are put back."""
    broken = runs[:2] if change == "exchanged" else runs[:1]
    file, other = (run / "server.log" for run in runs[:2])
    for run in runs[:2]:
        (run / "server.log").write_text(f"log of {run.name}")
        made_run.seal(run)
    assert look(runs)[0] == runs
    before = file.stat()
    text = file.read_text()[::-1]
    if change == "in place":
        with file.open("r+") as writing:
            writing.write(text)
    elif change == "replaced":
        file.with_name("new").write_text(text)
        file.with_name("new").replace(file)
    elif change == "exchanged":
        file.rename(file.parent.with_name("aside"))
        other.rename(file)
        file.parent.with_name("aside").rename(other)
    elif change == "added":
        file.with_name("notes").write_text("mine")
    else:
        file.unlink()
        if change == "linked":
            file.symlink_to(other)
    if change not in ("removed", "linked"):
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    complete, lines = look(runs)
    assert complete == [run for run in runs if run not in broken]
    assert [line.split()[1] for line in lines] == [run.name for run in broken]


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
