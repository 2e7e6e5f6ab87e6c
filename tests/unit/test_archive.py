"""Archives: the same content gives the same bytes, what is missing or changed is refused, nothing is overwritten."""

import json
import os
import subprocess
import zipfile

import pytest
import requests
from rocrate import vocabs
from rocrate_validator import services
from rocrate_validator.utils.http import HttpRequester

from servelab.archive.build import build_archive
from servelab.archive.contents import Contents, WorkflowSource, read_source
from servelab.archive.redaction import Redactor
from servelab.core.errors import ServelabError

RUN, OTHER_RUN = "0" * 19 + "1", "0" * 19 + "2"
SOURCE = WorkflowSource(["Snakefile"], "c" * 40, True, "2026-11-21")


@pytest.fixture
def files(tmp_path):
    """Files of an archive that is made of nothing but them."""
    content = {
        "workflow/Snakefile": "rule all:\n",
        "workflow/config/recorded/small/study.yaml": "study: small\n",
        "results/recorded/small/report.html": '<a href="logs/a.txt">1</a>',
        "results/recorded/small/report.md": "1\n",
        "results/recorded/small/logs/a.txt": "a log\n",
        f"results/runs/{RUN}/server.log": "on machine-of-somebody\n",
        f"results/runs/{RUN}/records.txt": "1 2 3\n",
        f"results/runs/{OTHER_RUN}/spec.json": "{}",
    }
    found = {}
    for name, text in content.items():
        found[name] = tmp_path / "origin" / name
        found[name].parent.mkdir(parents=True, exist_ok=True)
        found[name].write_text(text)
    return found


@pytest.fixture
def contents(files):
    return Contents("A small study", "2026-11-21", "recorded/small", files)


@pytest.fixture
def redactor(tmp_path):
    return Redactor(project=tmp_path / "nowhere", environment={}, hosts=["machine-of-somebody"])


@pytest.fixture
def build(contents, redactor, tmp_path):
    """Builds the archive under a name."""

    def build(name="x.zip"):
        build_archive(tmp_path / name, contents, SOURCE, redactor)
        return tmp_path / name

    return build


def test_two_builds_are_equal_to_the_byte(build, files):
    one = build("one.zip").read_bytes()
    for number, path in enumerate(files.values()):
        os.utime(path, (number, number))
        path.chmod(0o600)
    assert build("other.zip").read_bytes() == one
    next(iter(files.values())).write_text("something else")
    assert build("third.zip").read_bytes() != one


def add_a_secret(files):
    files["results/recorded/small/logs/a.txt"].write_text("token hf_" + "a1B2" * 9 + "\n")


def take_one_away(files):
    files["results/recorded/small/report.md"].unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (add_a_secret, r"logs/a\.txt: line 1: has a credential"),
        (take_one_away, r"report\.md: missing"),
    ],
)
def test_a_build_that_fails_names_the_file_and_leaves_nothing(build, files, tmp_path, spoil, said):
    spoil(files)
    with pytest.raises(ServelabError, match=said):
        build()
    assert [path.name for path in tmp_path.iterdir()] == ["origin"]


@pytest.fixture
def offline(monkeypatch):
    """RO-Crate's context as the library has it, in place of the one on the web; any other address fails.

    The library's is of a later release, in which Bioschemas' terms have other addresses than in 1.1.
    """
    context = json.dumps(vocabs.RO_CRATE).replace("https://bioschemas.org/terms/", "https://bioschemas.org/")

    def get(self, url, **options):
        assert url == "https://w3id.org/ro/crate/1.1/context"
        response = requests.Response()
        response.status_code, response._content = 200, context.encode()
        response.headers["Content-Type"] = "application/ld+json"
        return response

    monkeypatch.setattr(HttpRequester, "get", get, raising=False)


def test_the_crate_validates(build, offline, tmp_path):
    with zipfile.ZipFile(build()) as file:
        file.extractall(tmp_path / "crate")
    settings = services.ValidationSettings(
        rocrate_uri=tmp_path / "crate",
        profile_identifier="workflow-run-crate",
        requirement_severity="REQUIRED",
        offline=True,
        cache_path=tmp_path / "cache",
    )
    result = services.validate(settings)
    assert [f"{issue.check.name}: {issue.message}" for issue in result.get_issues()] == []


def git(folder, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    for name in ("Snakefile", "scripts/a.py", "notes.txt", ".gitignore", "config/studies/x.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("results/\n")
    git(folder.parent, "init", "-q", "checkout")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "x", "--date=2020-01-01T00:00:00Z")
    return folder


def test_the_source_of_a_checkout_is_what_is_tracked_and_new_code(checkout):
    clean = read_source(checkout)
    assert clean.files == [".gitignore", "Snakefile", "config/studies/x.yaml", "notes.txt", "scripts/a.py"]
    assert clean.dirty is False and len(clean.commit) == 40
    for name in ("scripts/new.py", "private.txt", "config/studies/mine.yaml"):
        (checkout / name).write_text("x\n")
    (checkout / "Snakefile").write_text("changed\n")
    (checkout / "notes.txt").unlink()
    found = read_source(checkout)
    assert found.files == [".gitignore", "Snakefile", "config/studies/x.yaml", "scripts/a.py", "scripts/new.py"]
    assert found.dirty is True
    assert found.commit == clean.commit


def test_a_link_in_the_source_is_refused(checkout):
    (checkout / "scripts/b.py").symlink_to("/etc/hostname")
    with pytest.raises(ServelabError, match=r"b\.py: a link"):
        read_source(checkout)


def test_without_a_checkout_the_source_is_all_but_the_results(tmp_path):
    for name in ("Snakefile", "scripts/servelab/results/parse.py", "results/runs/a.json", ".git-no/x", "scripts/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    found = read_source(tmp_path)
    assert found.files == ["Snakefile", "scripts/a.pyc", "scripts/servelab/results/parse.py"] and found.commit is None
