"""The workflow in an archive, compared with the commit that it names."""

import hashlib
import shutil
import subprocess

import pytest

from servelab.archive.known_workflow import match_workflow
from servelab.archive.layout import CRATE, DIFF, MANIFEST, README, Manifest, Member
from servelab.archive.workflow_source import read_source

FILES = ("Snakefile", "Makefile", "scripts/a.py", "docs/größe.md", "config/studies/x.yaml")


def git(folder, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture(params=["sha1", "sha256"])
def checkout(request, tmp_path):
    folder = tmp_path / "checkout"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    git(tmp_path, "init", "-q", f"--object-format={request.param}", "checkout")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "x", "--date=2020-01-01T00:00:00Z")
    return folder


@pytest.fixture
def archived(checkout, tmp_path):
    """Unpacks the workflow of the checkout as it is now, with a change to the archive; returns its match."""

    def archived(change=lambda folder: None, root=checkout, **told):
        folder, source = tmp_path / "archive", read_source(checkout)
        shutil.rmtree(folder, ignore_errors=True)
        for name in source.files:
            (folder / "workflow" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / name, folder / "workflow" / name)
        if source.diff:
            (folder / DIFF).write_bytes(source.diff)
        change(folder)
        members = {
            path.relative_to(folder).as_posix(): Member(
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(), size_bytes=1, media_type="x"
            )
            for path in folder.rglob("*")
            if path.is_file()
        }
        about = {"study": "x", "title": "X", "date": "2026-11-21", "searches": ["studies/x"], "members": members}
        manifest = Manifest(**about | {"commit": source.commit, "dirty": source.dirty} | told)
        return match_workflow(folder, manifest, root)

    return archived


def test_every_file_of_the_commit_matches(archived):
    match = archived()
    assert match.matched == {f"workflow/{name}" for name in FILES}
    assert (match.unproved, match.faults) == ({}, [])
    assert match.day and match.known_as.startswith("commit ")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "workflow/Makefile").write_text("\tcurl x | sh\n"),
        lambda folder: (folder / "workflow/Makefile").write_text(""),
        lambda folder: (folder / "workflow/Makefile").unlink(),
        lambda folder: (folder / "workflow/config/studies/x.yaml").write_text("other\n"),
        lambda folder: (folder / "workflow/docs/new.png").write_text("<html>"),
        lambda folder: (folder / "workflow.diff").write_text("not a diff\n"),
    ],
)
def test_what_differs_from_the_commit_is_a_fault(archived, change):
    assert archived(change).faults


def test_a_change_must_be_in_the_diff_and_is_not_proved(archived, checkout):
    (checkout / "Makefile").write_text("changed\n")
    (checkout / "docs/größe.md").unlink()
    (checkout / "scripts/new.py").write_text("new\n")
    match = archived()
    assert match.faults == []
    assert set(match.unproved) == {"workflow/Makefile", "workflow/scripts/new.py", DIFF}
    # the diff without the change, and the change without the diff
    assert archived(lambda folder: (folder / "workflow/Makefile").write_text("Makefile\n")).faults
    assert archived(lambda folder: (folder / DIFF).unlink(), dirty=False).faults
    assert archived(dirty=False).faults


def test_a_diff_that_stands_for_much_more_does_not_take_its_memory(archived, checkout, monkeypatch):
    """Binary changes are packed: 8 KB of the diff are 40 MB here."""
    (checkout / "scripts/zeros.bin").write_bytes(bytes(40 << 20))
    git(checkout, "add", ".")
    assert archived().faults == []
    monkeypatch.setattr("servelab.archive.known_workflow._MOST_MEMORY_BYTES", 32 << 20)
    (fault,) = archived().faults
    assert fault.startswith(f"{DIFF}: does not apply")


@pytest.mark.parametrize("commit", ["f" * 40, "f" * 64, "HEAD", "--output=/tmp/x", "main", None, ""])
def test_without_the_commit_it_is_compared_with_the_workflow_that_verifies(archived, checkout, commit):
    match = archived(lambda folder: (folder / "workflow/Makefile").write_text("x\n"), commit=commit)
    assert match.faults == [] and "the workflow that verifies" in match.known_as
    assert match.matched == {f"workflow/{name}" for name in FILES} - {"workflow/Makefile"}
    assert set(match.unproved) == {"workflow/Makefile", README, MANIFEST, CRATE}, "these name the commit and its day"


def test_nothing_is_written_into_the_checkout(archived, checkout):
    (checkout / "Makefile").write_text("changed\n")
    before = sorted(path for path in (checkout / ".git").rglob("*"))
    archived()
    assert sorted(path for path in (checkout / ".git").rglob("*")) == before
