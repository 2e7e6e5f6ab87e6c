"""Restoring: what an archive brings is checked before it counts as a run, marked, and overwrites nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import made_run
import pyarrow.parquet as pq
import pytest
from made_results import write_run
from ssh_keys import IDENTITY, allow, make_key, signing_key

from servelab.archive.build import build_archive
from servelab.archive.contents import Contents, WorkflowSource, run_faults
from servelab.archive.layout import check_signature, opened
from servelab.archive.redaction import Redactor
from servelab.archive.restore import restore_archive, restore_unpacked
from servelab.core.errors import ServelabError
from servelab.core.identity import file_sha256
from servelab.core.seal import faults_of_seal
from servelab.core.ssh_signature import sign_file
from servelab.measure.run_files import read_import
from servelab.report.measured_runs import MeasuredRuns

ROOT = Path(__file__).parents[2]
SOURCE = WorkflowSource(["Snakefile"], "c" * 40, False, "2026-11-21")


@pytest.fixture
def origin(tmp_path):
    """A results folder with a run, and what else a recorded study has."""
    results = tmp_path / "origin/results"
    write_run(results / "runs", made_run.spec())
    for name, text in {
        "recorded/small/report.html": '<a href="logs/a.txt">1</a>',
        "recorded/small/report.md": "1\n",
        "recorded/small/logs/a.txt": "a log\n",
    }.items():
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text(text)
    return results


@pytest.fixture
def run(origin):
    (folder,) = (origin / "runs").iterdir()
    return folder


@pytest.fixture
def archive(origin, tmp_path):
    """Builds the archive of the results as they are."""

    def build(name="x.zip"):
        files = {f"results/{path.relative_to(origin)}": path for path in sorted(origin.rglob("*")) if path.is_file()}
        for made in ("workflow/Snakefile", "workflow/config/recorded/small/study.yaml", "workflow/envs/a.txt"):
            files[made] = tmp_path / "made" / made
            files[made].parent.mkdir(parents=True, exist_ok=True)
            files[made].write_text("study: small\n")
        contents = Contents("A small study", "2026-11-21", "recorded/small", files)
        redactor = Redactor(project=tmp_path / "nowhere", environment={}, hosts=["machine-of-somebody"])
        build_archive(tmp_path / name, contents, SOURCE, redactor)
        return tmp_path / name

    return build


def restore(path, results, allowed=None):
    """Restores an archive that was verified."""
    results.mkdir(exist_ok=True)
    with opened(path, results) as (manifest, folder, faults):
        assert faults == []
        origin = {"archive": path.name, "archive_sha256": file_sha256(path), "study": manifest.study}
        return restore_unpacked(folder, manifest, origin, check_signature(path, allowed), results)


def files_of(results):
    return {path.relative_to(results).as_posix() for path in results.rglob("*") if path.is_file()}


def refused(path, results, words):
    """Refuses, and leaves nothing that was not there."""
    before = files_of(results) if results.exists() else set()
    with pytest.raises(ServelabError, match=words) as error:
        restore(path, results)
    assert "nothing was restored" in str(error.value)
    assert files_of(results) == before


def test_a_restored_run_is_marked_with_where_it_is_from(archive, run, tmp_path):
    path = archive()
    restored = restore(path, tmp_path / "results")
    assert restored.imported == [run.name]
    (found,) = read_import(tmp_path / "results/runs" / run.name).imports
    assert (found.archive, found.archive_sha256, found.study) == ("x.zip", file_sha256(path), "small")
    assert found.archive_signed_by is None and re.match(r"\d{4}-\d\d-\d\dT", found.imported_at)
    assert read_import(run) is None
    said = MeasuredRuns(tmp_path / "results/runs").imported([run.name])
    assert said.startswith("1 of 1 runs was not measured here but imported from x.zip (") and "by nobody known" in said
    assert MeasuredRuns(run.parent).imported([run.name]) == ""


def test_what_is_missing_is_written_and_what_is_there_stays(archive, run, tmp_path):
    path, results = archive(), tmp_path / "results"
    first = restore(path, results)
    before = (results / "recorded/small/report.md").stat()
    marks = (results / "runs" / run.name / "imported.json").read_bytes()
    again = restore(path, results)
    assert (again.written, again.there, again.imported) == (0, first.written, [])
    assert (results / "runs" / run.name / "imported.json").read_bytes() == marks
    assert (results / "recorded/small/report.md").stat().st_mtime_ns == before.st_mtime_ns


def test_a_run_from_which_names_were_removed_is_restored_with_a_seal_that_holds(archive, run, tmp_path):
    (run / "server.log").write_text("on machine-of-somebody\n")
    made_run.seal(run)
    restore(archive(), tmp_path / "results")
    restored = tmp_path / "results/runs" / run.name
    assert (restored / "server.log").read_text() == "on redacted-host\n"
    assert faults_of_seal(restored) == []


def test_a_conflict_is_refused_before_anything_is_written(archive, run, tmp_path):
    path, results = archive(), tmp_path / "results"
    mine = results / f"runs/{run.name}/requests.parquet"
    mine.parent.mkdir(parents=True)
    mine.write_text("another measurement")
    refused(path, results, re.escape(str(mine)))
    assert mine.read_text() == "another measurement"


def without_column(run):
    path = run / "requests.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["error"]), path)
    made_run.seal(run)


def change(run, name, **values):
    content = json.loads((run / name).read_bytes())
    (run / name).write_text(json.dumps(content | values))


BROKEN = {
    "a table that was changed": (
        lambda run: (run / "requests.parquet").write_bytes(b"PAR1"),
        "requests.parquet: was changed",
    ),
    "a table without a column": (without_column, "requests.parquet: has no column error"),
    "the status of another run": (lambda run: change(run, "status.json", run_id="0" * 20), "status.json: is of run 0"),
    "a log that was changed": (lambda run: (run / "server.log").write_text("x"), "server.log: was added"),
    "a run without a seal": (lambda run: change(run, "status.json", seal=None), "status.json: has no seal"),
    "a mark that is none": (lambda run: (run / "imported.json").write_text("[]"), "imported.json"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_run_is_not_restored(what, run):
    break_it, said = BROKEN[what]
    break_it(run)
    (fault, *_) = run_faults(run.parents[1], run.name)
    assert fault.startswith(f"{run}/{said}")


def test_an_archive_that_does_not_verify_is_not_restored(archive, tmp_path):
    """Of this one nothing can be made again: it is no study."""
    with pytest.raises(ServelabError, match=r"x\.zip: does not verify: .*; nothing was restored"):
        restore_archive(archive(), tmp_path / "results", ROOT, accepts_unsigned=True)
    assert files_of(tmp_path / "results") == set()


def test_who_signed_the_archive_is_in_the_mark(archive, run, tmp_path):
    key = make_key(tmp_path / "key")
    path = archive()
    sign_file(signing_key(key), path)
    restored = restore(path, tmp_path / "results", allow(tmp_path / "allowed", key))
    assert restored.signature.text.startswith(f"signed by {IDENTITY} (ED25519 key SHA256:")
    (found,) = read_import(tmp_path / "results/runs" / run.name).imports
    assert found.archive_signed_by.startswith(f"{IDENTITY} (")
