"""Studies archived, restored in a clean copy of the project and verified, through scripts and workflow."""

import json
import re
import sys
from pathlib import Path

import pytest
from forged import read_members, write_forged
from unit.made_run import seal
from workspace import ARCHIVE_STUDY, Workspace

from servelab.archive.layout import MANIFEST

pytestmark = pytest.mark.slow

EMPTY = "Nothing to be done"


def script(workspace, name, *arguments, check=True):
    """Runs a script of the workspace; returns what it printed."""
    done = workspace.call(sys.executable, f"scripts/{name}.py", *map(str, arguments))
    assert not check or done.returncode == 0, done.stdout
    return done.stdout if check else (done.returncode, done.stdout)


def only_archive(workspace, folder="results/archives"):
    (archive,) = (workspace.folder / folder).glob("*.zip")
    return archive


@pytest.fixture(scope="module")
def archived(finished, tmp_path_factory):
    """A copy of the finished tiny study, with its archive; a run was disturbed, and the machine is quieter now."""
    workspace = finished.copy(tmp_path_factory.mktemp("archived") / "tiny")
    run = min((workspace.folder / "results/runs").iterdir())
    status = json.loads((run / "status.json").read_bytes()) | {"disturbed": "by others", "others_percent": 1e4}
    (run / "status.json").write_text(json.dumps(status))
    seal(run)
    workspace.snakemake("--config", "again=[nothing]")
    script(workspace, "archive", *ARCHIVE_STUDY)
    return workspace


@pytest.fixture(scope="module")
def restored(archived, tmp_path_factory):
    """A clean copy of the project into which the archive was restored."""
    workspace = Workspace.create(tmp_path_factory.mktemp("restored") / "tiny")
    script(workspace, "servelab_command", "restore", "--accept-unsigned", only_archive(archived))
    return workspace


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_restored_study_has_nothing_to_do_and_renders_the_same_report(archived, restored):
    target = "results/studies/tiny/report.html"
    assert EMPTY in restored.snakemake("-n")
    report = restored.folder / target
    before, time = report.read_bytes(), report.stat().st_mtime_ns
    restored.snakemake("--forcerun", "render_report", "--", target)
    assert report.stat().st_mtime_ns > time and report.read_bytes() == before
    said, of_origin = before.decode(), (archived.folder / target).read_text()
    runs = len(list((restored.folder / "results/runs").glob("*/imported.json")))
    imported = f"{runs} of {runs} runs were not measured here but imported from {only_archive(archived).name} ("
    assert runs and imported in said and "imported" not in of_origin
    assert ", imported" in (restored.folder / "results/index.html").read_text()


def test_everything_of_the_study_is_restored(archived, restored):
    """To the byte, but for logs from which the project's place was taken out, as the manifest says."""
    members = json.loads(read_members(only_archive(archived))[MANIFEST])["members"]
    redacted = {name for name, member in members.items() if member["redacted"]}
    for folder in ("results/runs", "results/studies/tiny/stages"):
        before, after = files_of(archived.folder / folder), files_of(restored.folder / folder)
        marks = {f"{name.partition('/')[0]}/imported.json" for name in before if "runs" in folder}
        assert marks <= after.keys()
        after = {name: content for name, content in after.items() if name not in marks}
        assert before.keys() == after.keys()
        changed = {name for name in before if before[name] != after[name]}
        assert {f"{folder}/{name}" for name in changed} <= redacted
        assert all(name.endswith((".log", "manifest.json", "status.json")) for name in changed), changed


def test_a_missing_or_changed_record_fails_the_build(archived, tmp_path):
    workspace = archived.copy(tmp_path / "copy")
    before = only_archive(workspace).read_bytes()
    run = next(iter(sorted((workspace.folder / "results/runs").iterdir())))
    for name, change in (
        ("requests.parquet", Path.unlink),
        ("spec.json", lambda path: path.write_text('{"engine": 1}')),
    ):
        kept = (run / name).read_bytes()
        change(run / name)
        code, said = script(workspace, "archive", *ARCHIVE_STUDY, check=False)
        assert code == 1 and f"{run.name}" in said and name in said and "Traceback" not in said
        (run / name).write_bytes(kept)
    assert only_archive(workspace).read_bytes() == before


STUDY = "results/studies/tiny"
FORGERIES = {
    "another answer": (f"{STUDY}/recommended.json", lambda old: old.replace(b'"tiny"', b'"tiny-long"', 1)),
    "no history": (f"{STUDY}/history.parquet", lambda old: None),
    "a file of nothing": (f"{STUDY}/more.json", lambda old: b"{}"),
    "another page": (f"{STUDY}/report.md", lambda old: b"+500 %"),
    "another README": ("README.md", lambda old: b"+500 %"),
    "another figure for spreadsheets": (f"{STUDY}/tables/metrics.csv", lambda old: old.replace(b"1", b"2")),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forgery_whose_manifest_agrees_is_found(what, archived, tmp_path):
    members = read_members(only_archive(archived))
    name, forge = FORGERIES[what]
    members[name] = forge(members.get(name))
    forged = write_forged(tmp_path / "forged.zip", {name: new for name, new in members.items() if new is not None})
    code, said = script(archived, "servelab_command", "verify", "--accept-unsigned", forged, check=False)
    assert code == 1 and re.search(rf"does not hold: .*{re.escape(Path(name).name)}", said), said


def restored_again(workspace, said, folder, *config):
    """Recorded studies that the workflow archived and verified, restored in a clean copy of the project."""
    again = Workspace.create(folder)
    for archive in sorted(workspace.folder.glob("results/archives/recorded/*.zip")):
        assert f"{archive.relative_to(workspace.folder)}: " in said and "DOES NOT HOLD" not in said
        study = re.sub(r"-\d{4}-\d\d-\d\d\.zip$", "", archive.name)
        script(again, "servelab_command", "restore", "--accept-unsigned", archive)
        targets = [f"results/recorded/{study}/{name}" for name in ("report.html", "recommended.json")]
        assert EMPTY in again.snakemake("-n", *config, "--", *targets)
        again.snakemake("--forcerun", "render_report", *config, "--", targets[0])
        assert (again.folder / targets[0]).read_bytes() == (workspace.folder / targets[0]).read_bytes()
        yield study


def test_a_recorded_study_archived_and_restored(archived_example, tmp_path):
    config = ("--config", "studies=[]", "recorded=[example]")
    assert list(restored_again(archived_example, archived_example.log, tmp_path / "restored", *config)) == ["example"]
