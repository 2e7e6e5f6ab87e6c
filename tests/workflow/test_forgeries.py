"""Archives forged so that every hash agrees: what verifying them finds, by class.

SERVELAB_FORGERIES=<n> makes about so many; the result is printed as a table. Recomputing, which takes most of the time,
is done once for all forgeries with the same raw records and configuration.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
from collections import Counter
from itertools import chain

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from forger import CLASSES, describe, forge, read_members, write_members
from member_forger import forge_any

from servelab.archive import verify
from servelab.archive.layout import CRATE, MANIFEST
from servelab.archive.recompute import recompute
from servelab.archive.unpack import open_archive
from servelab.archive.verify import read_manifest, verify_archive
from servelab.core.errors import ServelabError

pytestmark = pytest.mark.slow
FORGERIES = int(os.environ.get("SERVELAB_FORGERIES", "60"))
UNSIGNED = {
    "figures of requests",
    "status",
    "telemetry",
    "run's manifest",
    "server.log",
    "job logs",
    "descriptions",
    "a log or description removed",
    "said to be left out",
    "emptied",
}
"""Forgeries of raw records that may contradict nothing: an archive with any of them is never more than consistent."""
COMPUTES_AGAIN = {
    ("raw records", "figures of requests"),
    ("raw records", "status"),
    ("raw records", "telemetry"),
    ("raw records", "run's manifest"),
    ("raw records", "name and content disagree"),
    ("raw records", "emptied"),
    ("raw records", "a needed file removed"),
    ("workflow", "a lock"),
}
"""Each forgery of these needs a recomputation of its own, so there are few."""


def git(folder, *arguments):
    named = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def study(finished, tmp_path_factory):
    """The tiny study in a checkout with one commit, and its archive."""
    workspace = finished.copy(tmp_path_factory.mktemp("forged") / "tiny")
    (workspace.folder / ".gitignore").write_text("results/\n.snakemake/\n__pycache__/\n")
    git(workspace.folder, "init", "--quiet")
    git(workspace.folder, "add", ".")
    git(workspace.folder, "commit", "--quiet", "--message", "all")
    archive = workspace.folder.parent / "tiny.zip"
    command = ["python", "scripts/archive_study.py", "--search", "studies/tiny", "--output", str(archive)]
    subprocess.run(command, cwd=workspace.folder, env=workspace.environment(), check=True)
    return workspace.folder, archive


@pytest.fixture(scope="module")
def recomputed_once(tmp_path_factory):
    """Recomputes each state of raw records and configuration once."""
    kept = tmp_path_factory.mktemp("recomputed")

    def state(folder, manifest):
        digest = hashlib.sha256()
        own = tuple(f"results/{search}/" for search in manifest.searches)
        for name, member in sorted(manifest.members.items()):
            if name.startswith(own) and "/answers/" not in name:
                continue
            if name.endswith("/status.json"):  # without its seal
                try:
                    status = json.loads((folder / name).read_bytes())
                    digest.update(f"{name} {dict(status, seal=None)}".encode())
                    continue
                except (ValueError, TypeError):
                    pass
            if name.startswith(("workflow/config/", "workflow/envs/", "results/")) and not name.endswith(".log"):
                digest.update(f"{name} {member.sha256}".encode())
        return kept / digest.hexdigest()

    def once(folder, manifest, code, work):
        place = state(folder, manifest)
        failed = place.with_suffix(".failed")
        if not place.exists() and not failed.exists():
            if why := recompute(folder, manifest, code, work):
                failed.write_text(why)
                return why
            shutil.copytree(work, place, symlinks=True)
            return None
        if failed.exists():
            return failed.read_text()
        shutil.copytree(place, work, symlinks=True, dirs_exist_ok=True)
        for name in ("runs", "workloads"):
            shutil.rmtree(work / "results" / name)
            shutil.copytree(folder / "results" / name, work / "results" / name)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "recompute", once)
        yield


def outcome(archive, root, touched):
    """`found`, `listed` (as not proved), or `passed`."""
    try:
        verdict = verify_archive(archive, root)
    except ServelabError as error:
        return "found", str(error)
    if verdict.faults:
        return "found", verdict.faults[0]
    own = touched - {MANIFEST, CRATE} or touched
    own = {name for name in own if not name.endswith("/status.json")} or own
    silent = own - verdict.coverage.unproved.keys()
    return ("passed", f"{sorted(silent)[:3]}") if silent else ("listed", f"not proved: {min(own)}")


def drawn(count):
    """Classes in turn, so that each has the same number; those that take a recomputation each have 2."""
    names = [(area, kind) for area, kinds in CLASSES.items() for kind in kinds]
    made = Counter()
    turns = chain.from_iterable(names for _ in range(count))
    for area, kind in turns:
        if sum(made.values()) == count:
            return
        if (area, kind) not in COMPUTES_AGAIN or made[area, kind] < 2:
            yield area, kind, made[area, kind]
            made[area, kind] += 1


def test_forgeries(study, recomputed_once, tmp_path):
    root, archive = study
    original = read_members(archive)
    sound = verify_archive(archive, root)
    assert sound.faults == []
    counts, passed = Counter(), []
    for area, kind, seed in drawn(FORGERIES):
        forgery = forge(original, area, kind, seed)
        found, why = outcome(write_members(tmp_path / "forged.zip", forgery.members), root, forgery.touched)
        counts[area, kind, found] += 1
        passed += [(area, kind, seed, why)] if found == "passed" else []
        if found != "found" and (area, kind) not in {("raw records", each) for each in UNSIGNED}:
            pytest.fail(f"{area}, {kind}, {seed}: {found}: {why}; {sorted(forgery.touched)[:5]}")
    for (area, kind, found), count in sorted(counts.items()):
        print(f"{area:15} {kind:32} {found:8} {count:4}")
    print(Counter({found: sum(n for (*_, each), n in counts.items() if each == found) for *_, found in counts}))
    assert not passed


def test_forgeries_of_any_member(study, recomputed_once, tmp_path):
    """What is changed is found, or is in the list of what is not proved; so is what was removed."""
    root, archive = study
    original = read_members(archive)
    counts, passed = Counter(), []
    for number in range(FORGERIES):
        forgery = forge_any(original, number)
        found, why = outcome(write_members(tmp_path / "forged.zip", forgery.members), root, forgery.touched)
        counts[forgery.kind, found] += 1
        passed += [(number, forgery.kind, sorted(forgery.touched), why)] if found == "passed" else []
        print(number, forgery.kind, found, why[:120], flush=True)
    for (kind, found), count in sorted(counts.items()):
        print(f"{kind:40} {found:8} {count:4}")
    print(Counter({found: sum(n for (_, each), n in counts.items() if each == found) for _, found in counts}))
    assert not passed


def test_invented_records_are_consistent_and_never_proved(study, tmp_path):
    """Everything is computed from changed records: no contradiction is left, and the records are listed."""
    root, archive = study
    members = read_members(archive)
    record = next(name for name in sorted(members) if name.endswith("/requests.parquet") and "/runs/" in name)
    table = pq.read_table(io.BytesIO(members[record]))
    column = table.schema.get_field_index("end_s")
    later = pc.cast(pc.multiply(table.column(column), 1.01), table.schema.field(column).type)
    pq.write_table(table.set_column(column, table.schema.field(column), later), tmp_path / "requests.parquet")
    members[record] = (tmp_path / "requests.parquet").read_bytes()
    describe(members, set())
    folder, work = tmp_path / "unpacked", tmp_path / "again"
    work.mkdir()
    with open_archive(write_members(tmp_path / "half.zip", members)) as half:
        manifest = read_manifest(half)
        folder.mkdir()
        half.write(folder)
    assert recompute(folder, manifest, root, work) is None
    for name in members:
        if name.startswith("results/studies/"):
            members[name] = (work / name).read_bytes()
    describe(members, set())
    verdict = verify_archive(write_members(tmp_path / "invented.zip", members), root)
    assert verdict.faults == []
    assert record in verdict.coverage.unproved and not verdict.coverage.is_whole
