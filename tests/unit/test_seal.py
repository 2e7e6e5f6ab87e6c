"""The seal of a run: every change of its folder is found, and each line names the file."""

from __future__ import annotations

import json
import os
import re
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
