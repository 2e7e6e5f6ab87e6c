"""The seal of a run: every change of its folder is found, and each line names the file."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import made_run
import pytest
from made_results import write_run

from servelab.core.errors import ServelabError
from servelab.core.identity import file_sha256
from servelab.core.seal import Seal, faults_of_seal, resealed, seal_of
from servelab.measure.run_files import RunStatus
from servelab.measure.sealed_runs import SealedRuns

SPEC = made_run.spec()
OTHER = made_run.spec(protocol={"max_concurrency": 8})


@pytest.fixture
def run(tmp_path) -> Path:
    """A complete run, as it is after its measurement."""
    folder = write_run(tmp_path / "runs", SPEC)
    (folder / "server.log").write_text("listening\n")
    made_run.seal(folder)
    return folder


def faults_of(run: Path) -> list[str]:
    """Its faults; a run with any is not used."""
    faults = faults_of_seal(run)
    assert SealedRuns(run.parent).is_complete(run.name) == (not faults)
    return faults


@pytest.fixture
def other(tmp_path) -> Path:
    """A complete run of another configuration, with other figures."""
    return write_run(tmp_path / "runs", OTHER, pace=1.3)


def test_a_run_as_it_was_measured_has_no_fault(run):
    assert faults_of(run) == []
    seal = RunStatus.read(run / "status.json").seal
    assert seal is not None
    assert {*seal.files} == {"manifest.json", "requests.parquet", "server.log", "spec.json", "telemetry.parquet"}


@pytest.mark.parametrize(
    "name", ["manifest.json", "requests.parquet", "server.log", "spec.json", "status.json", "telemetry.parquet"]
)
def test_each_file_that_is_removed_emptied_cut_or_changed_in_one_byte(run, name):
    file = run / name
    before = file.read_bytes()
    file.unlink()
    assert faults_of(run) == [f"{name}: missing"]
    changed = "not valid JSON" if name == "status.json" else "was changed"
    for content in (b"", before[: len(before) // 2]):
        file.write_bytes(content)
        assert faults_of(run) == [f"{name}: {changed}"]
    for at in range(0, len(before), max(1, len(before) // 50)):
        file.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        assert faults_of(run), at
    file.write_bytes(before)
    assert faults_of(run) == []


def test_what_was_added(run):
    (run / "more").mkdir()
    (run / "more/notes.txt").write_text("mine")
    assert faults_of(run) == ["more: was added"]


@pytest.mark.parametrize("name", ["requests.parquet", "status.json"])
@pytest.mark.parametrize("change", ["link", "pipe", "folder", "link to a folder", "link to nothing"])
def test_what_is_not_a_plain_file(run, other, change, name):
    (run / name).unlink()
    if change == "pipe":
        os.mkfifo(run / name)
    elif change == "folder":
        (run / name).mkdir()
    else:
        targets = {"link": other / name, "link to a folder": other, "link to nothing": other / "nothing"}
        (run / name).symlink_to(targets[change])
    why = f"{name}: is {'a link' if 'link' in change else 'not a plain file'}"
    assert faults_of(run) == [why]
    if name != "status.json":
        with pytest.raises(ServelabError, match=re.escape(why)):
            seal_of(run, {})


@pytest.mark.parametrize(
    ("seal", "fault"),
    [
        (None, "has no seal, so another version of the workflow wrote it"),
        ("yes", "its seal was changed"),
        ({"files": {}}, "its seal was changed"),
        ({"files": {"spec.json": {"sha256": 3}}, "status_sha256": "0"}, "its seal was changed"),
    ],
)
def test_a_seal_that_is_none(run, seal, fault):
    file = run / "status.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seal": seal}))
    assert faults_of(run) == [f"status.json: {fault}"]


def test_what_an_archive_redacted_is_sealed_again_with_the_digest_it_had(run):
    status = json.loads((run / "status.json").read_bytes())
    before = Seal.model_validate(status["seal"]).files["server.log"].sha256
    (run / "server.log").write_text("listening on <host>\n")
    for _ in range(2):  # an archive of restored runs is made the same way
        sha256 = file_sha256(run / "server.log")
        status = resealed(status, {"server.log": (sha256, (run / "server.log").stat().st_size)})
    (run / "status.json").write_text(json.dumps(status))
    assert faults_of(run) == []
    sealed = Seal.model_validate(status["seal"]).files["server.log"]
    assert (sealed.sha256, sealed.measured_sha256) == (sha256, before)


# a run is complete while its files are those of its seal


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
