"""Studies archived, restored in a clean copy of the project, verified and compared, through scripts and workflow."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from workspace import ROOT, Workspace, tiny_study

from servelab.answers import read_answers
from servelab.archive.unpack import open_archive
from servelab.archive.verify import read_manifest
from servelab.plan import Plan, baseline, plan_stage
from servelab.project import load_project
from servelab.study import load_study

EMPTY = "Nothing to be done"


def script(workspace, name, *arguments, check=True):
    """Runs a script of the workspace; returns what it printed."""
    done = subprocess.run(
        [sys.executable, f"scripts/{name}.py", *map(str, arguments)],
        cwd=workspace.folder,
        env=workspace.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout
    return done.stdout if check else (done.returncode, done.stdout)


def create(folder):
    """A clean copy of the project, with what says of which release it is."""
    workspace = Workspace.create(folder)
    shutil.copy2(ROOT / "CITATION.cff", workspace.folder)
    return workspace


def only_archive(workspace, folder="results/archives"):
    (archive,) = (workspace.folder / folder).glob("*.zip")
    return archive


@pytest.fixture(scope="module")
def archived(finished, tmp_path_factory):
    """A copy of the finished tiny study, with its archive."""
    workspace = finished.copy(tmp_path_factory.mktemp("archived") / "tiny")
    shutil.copy2(ROOT / "CITATION.cff", workspace.folder)
    script(workspace, "archive_study", "--search", "studies/tiny")
    return workspace


@pytest.fixture(scope="module")
def restored(archived, tmp_path_factory):
    """A clean copy of the project into which the archive was restored."""
    workspace = create(tmp_path_factory.mktemp("restored") / "tiny")
    script(workspace, "restore_archive", only_archive(archived))
    return workspace


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_name_has_the_day_on_which_the_last_run_ended(archived):
    days = [
        json.loads(path.read_bytes())["finished_at"][:10] for path in archived.folder.glob("results/runs/*/status.json")
    ]
    assert only_archive(archived).name == f"tiny-{max(days)}.zip"


def test_a_second_build_gives_the_same_bytes(archived, tmp_path):
    script(archived, "archive_study", "--search", "studies/tiny", "--output", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == only_archive(archived).read_bytes()


def test_a_restored_study_has_nothing_to_do_and_renders_the_same_report(archived, restored):
    target = "results/studies/tiny/report.html"
    assert EMPTY in restored.snakemake("-n")
    report = restored.folder / target
    before, time = report.read_bytes(), report.stat().st_mtime_ns
    restored.snakemake("--forcerun", "render_report", "--", target)
    assert report.stat().st_mtime_ns > time and report.read_bytes() == before
    assert before == (archived.folder / target).read_bytes()


def test_everything_of_the_study_is_restored(archived, restored):
    """To the byte, but for logs from which the project's place was taken out, as the manifest says."""
    with open_archive(only_archive(archived)) as archive:
        members = read_manifest(archive).members
    redacted = {name for name, member in members.items() if member.redacted}
    for folder in ("results/runs", "results/studies/tiny/stages"):
        before, after = files_of(archived.folder / folder), files_of(restored.folder / folder)
        assert before.keys() == after.keys()
        changed = {name for name in before if before[name] != after[name]}
        assert {f"{folder}/{name}" for name in changed} <= redacted
        assert all(name.endswith((".log", "manifest.json")) for name in changed), changed


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
        code, said = script(workspace, "archive_study", "--search", "studies/tiny", check=False)
        assert code == 1 and f"{run.name}" in said and name in said and "Traceback" not in said
        (run / name).write_bytes(kept)
    assert only_archive(workspace).read_bytes() == before


def test_the_recipe_plans_the_same_runs(archived, tmp_path):
    with zipfile.ZipFile(only_archive(archived)) as file:
        file.extractall(tmp_path)
    recipe = tmp_path / "recipe/tiny.yaml"
    assert load_study(recipe).study == "tiny"
    project = load_project(recipe, tmp_path / "workflow")
    stage = project.stage_names[0]
    archived_plan = Plan.model_validate_json((tmp_path / f"results/studies/tiny/stages/{stage}/plan.json").read_bytes())
    assert plan_stage(project, stage, baseline(project)).run_ids() == archived_plan.run_ids()
    locks = set(re.findall(r"^# .*: sha256 (\w{64})$", recipe.read_text(), re.MULTILINE))
    (answer,) = read_answers(tmp_path / "results/studies/tiny/answers").values()
    assert locks == {engine.environment_sha256 for engine in answer.versions.values()}


def test_two_archives_are_compared(archived):
    archive = only_archive(archived)
    said = script(archived, "compare_archives", archive, archive)
    assert "the two are the same file" in said
    assert all(f"\n{title}\n" in f"\n{said}" for title in ("Identity", "Versions", "Hardware", "Figures"))


def rewrite(archive, output, change):
    """The archive with its members changed by `change`, and a manifest that says so: what only recomputing finds."""
    import hashlib

    from servelab.archive.container import entry, seal

    with zipfile.ZipFile(archive) as file:
        members = {name: file.read(name) for name in file.namelist()}
    change(members)
    manifest = json.loads(members.pop("manifest.json"))
    for name, content in members.items():
        told = manifest["members"].setdefault(name, {"media_type": "text/plain"})
        manifest["members"][name] = told | {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(output, "w") as file:
        for name, content in sorted(members.items()):
            with file.open(entry(name, len(content)), "w") as member:
                member.write(content)
    seal(output)
    return output


@pytest.mark.slow
def test_a_live_study_verifies_and_what_was_forged_does_not(archived, tmp_path):
    said = script(archived, "verify_archive", only_archive(archived))
    assert len(said.splitlines()) == 1 and ": holds: " in said

    def forge(members):
        name = "results/studies/tiny/recommended.json"
        members[name] = members[name].replace(b'"study": "tiny"', b'"study": "tony"')

    forged = rewrite(only_archive(archived), tmp_path / "forged.zip", forge)
    code, said = script(archived, "verify_archive", forged, check=False)
    assert code == 1
    assert "does not hold: results/studies/tiny/recommended.json: study: tiny" not in said
    assert "does not hold: results/studies/tiny/recommended.json: study: tony; made again, tiny" in said


@pytest.mark.slow
def test_documented_commands(finished, tmp_path):
    """Every command of docs/archive.md, in its order, on the tiny study under the name that the documents use."""
    workspace = finished.copy(tmp_path / "copy")
    shutil.copy2(ROOT / "CITATION.cff", workspace.folder)
    shutil.copytree(ROOT / "docs", workspace.folder / "docs")
    text = (ROOT / "docs/archive.md").read_text()
    commands = re.findall(r"^    ((?:snakemake|python) .*)$", text, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        found = list((workspace.folder / "results").glob("archives/*.zip"))
        given = {"FILE": found, "A": found, "B": found}
        words = [str(given[word][0]) if word in given else word for word in shlex.split(command)]
        done = subprocess.run(
            words, cwd=workspace.folder, env=workspace.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert EMPTY in workspace.snakemake("-n", "archive")


def archive_and_restore(folder, *config):
    """Recorded studies archived by the workflow, verified, and restored in a clean copy of the project."""
    workspace = create(folder / "made")
    said = workspace.snakemake("archive", *config)
    again = create(folder / "restored")
    for archive in sorted(workspace.folder.glob("results/archives/recorded/*.zip")):
        assert f"{archive.relative_to(workspace.folder)}: holds: " in said
        study = re.sub(r"-\d{4}-\d\d-\d\d\.zip$", "", archive.name)
        script(again, "restore_archive", archive)
        targets = [f"results/recorded/{study}/{name}" for name in ("report.html", "recommended.json")]
        assert EMPTY in again.snakemake("-n", *config, "--", *targets)
        again.snakemake("--forcerun", "render_report", *config, "--", targets[0])
        assert (again.folder / targets[0]).read_bytes() == (workspace.folder / targets[0]).read_bytes()
        yield study


@pytest.mark.slow
def test_a_recorded_study_archived_and_restored(tmp_path):
    assert list(archive_and_restore(tmp_path, "--config", "studies=[]", "recorded=[example]")) == ["example"]


@pytest.mark.slow
@pytest.mark.long
def test_the_five_recorded_studies_archived_and_restored(tmp_path):
    assert len(list(archive_and_restore(tmp_path, "--configfile", "config/recorded.yaml"))) == 5


@pytest.mark.slow
@pytest.mark.long
def test_a_study_beside_a_recorded_one_of_its_name_takes_both_along(finished, tmp_path):
    workspace = finished.copy(tmp_path / "copy")
    shutil.copy2(ROOT / "CITATION.cff", workspace.folder)
    workspace.write_study(tiny_study("example"))
    said = workspace.snakemake("archive", "--config", "studies=[example]", "recorded=[example]")
    archives = sorted(workspace.folder.glob("results/archives/**/*.zip"))
    assert len(archives) == 2 and said.count(": holds: ") == 2
