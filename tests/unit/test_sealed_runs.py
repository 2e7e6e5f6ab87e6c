"""A run is compared with its seal once; later a look at sizes and times finds every change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import made_run
import pytest
from made_results import write_run

from servelab.measure import sealed_runs
from servelab.measure.sealed_runs import SealedRuns


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    """Three complete runs."""
    return [write_run(tmp_path / "runs", made_run.spec(protocol={"max_concurrency": n})) for n in (4, 8, 16)]


@pytest.fixture
def look(tmp_path, monkeypatch):
    """A new process's look at all runs: those that are complete, those compared with their seals, and the lines."""
    compared: list[str] = []
    real = sealed_runs.why_not_used

    def why_not_used(folder: Path, *, use_imported: bool) -> str | None:
        compared.append(folder.name)
        return real(folder, use_imported=use_imported)

    monkeypatch.setattr(sealed_runs, "why_not_used", why_not_used)

    def of(runs: list[Path]) -> tuple[list[Path], list[str], list[str]]:
        compared.clear()
        lines: list[str] = []
        sealed = SealedRuns(tmp_path / "runs", tmp_path / "kept", lines.append)
        for _ in range(2):
            complete = [run for run in runs if sealed.is_complete(run.name)]
        return complete, [*compared], lines

    return of


def test_each_is_compared_once_and_a_missing_one_never(runs, look, tmp_path):
    names = [run.name for run in runs]
    assert look(runs) == (runs, names, [])
    assert look(runs) == (runs, [], [])
    shutil.rmtree(tmp_path / "kept")
    assert look(runs) == (runs, names, [])
    shutil.rmtree(runs[1])
    runs[1].mkdir()  # as Snakemake does before a job
    assert look(runs) == ([runs[0], runs[2]], [], [])


@pytest.mark.parametrize("change", ["in place", "replaced", "exchanged", "removed", "added", "linked"])
def test_what_changes_after_it_was_compared_is_found(runs, look, change):
    """Its size and its time of modification are put back."""
    look(runs)
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
    complete, compared, lines = look(runs)
    assert complete == [run for run in runs if run not in broken]
    assert {run.name for run in broken} <= {*compared} and len(compared) == len(broken)
    assert [line.split()[1] for line in lines] == [run.name for run in broken]


def test_what_was_kept_of_the_comparison_may_be_damaged(runs, look, tmp_path):
    look(runs)
    kept = tmp_path / "kept/sound"
    kept.write_bytes(kept.read_bytes()[:-15] + b"\xff\n\n torn")
    complete, compared, lines = look(runs)
    assert (complete, compared, lines) == (runs, [runs[2].name], [])


def test_where_nothing_can_be_kept_each_is_compared_again(runs, look, tmp_path):
    (tmp_path / "kept").write_text("in the way")
    for _ in range(2):
        complete, compared, _ = look(runs)
        assert (complete, len(compared)) == (runs, 3)


def test_a_run_that_is_measured_again_is_complete_in_the_same_process(runs, tmp_path):
    (runs[0] / "requests.parquet").unlink()
    sealed = SealedRuns(tmp_path / "runs")
    assert not sealed.is_complete(runs[0].name)
    assert sealed.marks(runs[0].name) == []  # without a folder to keep a mark in
    shutil.rmtree(runs[0])
    assert not sealed.is_complete(runs[0].name)
    write_run(tmp_path / "runs", made_run.spec(protocol={"max_concurrency": 4}))
    assert sealed.is_complete(runs[0].name)
