"""What opens something, or says who measured where, is planted in all that an archive is made from; none gets in."""

import html
import json
import re
import subprocess
import sys
import zipfile
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from workspace import ARCHIVE_STUDY, Workspace

from servelab.core.seal import seal_of

pytestmark = pytest.mark.slow
# put together here, so that no file of the project holds anything of such a form
HUB, GIT = "hf_" + "QwErTyUi" * 4, "ghp_" + "z9Y8x7W6" * 5
KEY, PASSWORD = "mock-turtle-soup-17", 'b"e<a>u&tiful+soup'
USER, HOST, HOME = "aliceliddell", "looking-glass-07", "/home/aliceliddell"
PROXY = "proxy.wonder.example:3128"
ENVIRONMENT = {
    "HF_TOKEN": HUB,
    "WONDER_API_KEY": KEY,
    "DB_PASSWORD": PASSWORD,
    "HOME": HOME,
    "USER": USER,
    "LOGNAME": USER,
    "HOSTNAME": HOST,
    "https_proxy": f"http://{USER}:{KEY}@{PROXY}",
    "no_proxy": "localhost,.wonder.example",
}
PLANTED = [HUB, GIT, KEY, PASSWORD, USER, HOST, "node-of-the-cluster-5", PROXY, "wonder.example"]
LINE = f"{USER}@{HOST}: {HOME}/bin/serve --api-key {KEY} {HUB} {GIT} {PASSWORD} via http://{PROXY}"


def git(workspace, *arguments):
    named = ["-c", f"user.name={USER}", "-c", f"user.email={USER}@wonder.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *named, *arguments], cwd=workspace.folder, check=True, capture_output=True)


def failed_run(workspace):
    """The run of the tiny study that fails, whose message gets into tables and report."""
    for path in sorted(workspace.folder.glob("results/runs/*/status.json")):
        if json.loads(path.read_bytes())["outcome"] == "failed":
            return path.parent
    raise AssertionError("no run of the tiny study failed")


def edit_json(path, change):
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value, indent=2) + "\n")


def plant(workspace):
    """Everywhere: a checkout with its remote and changes, configuration, manifests, statuses, records and logs."""
    git(workspace, "init", "--quiet")
    git(workspace, "add", "Snakefile", "config", "rules", "scripts", "envs", "profiles")
    git(workspace, "commit", "--quiet", "--message", "all")
    git(workspace, "remote", "add", "origin", f"https://{USER}:{GIT}@git.wonder.example/a.git")
    config = workspace.folder / "config/config.yaml"
    config.write_text(f"{config.read_text()}# {LINE}\n")
    for number, run in enumerate(sorted(workspace.folder.glob("results/runs/*"))):
        with (run / "server.log").open("a") as log:
            log.write(f"=== {LINE}\nHF_TOKEN={HUB} WONDER_API_KEY={KEY}\n")
        if (run / "manifest.json").stat().st_size > 10:
            edit_json(run / "manifest.json", lambda value: plant_in_manifest(value))
        if number == 0:
            table = pq.read_table(run / "requests.parquet")
            pq.write_table(table.replace_schema_metadata({"from": LINE}), run / "requests.parquet")
    edit_json(
        failed_run(workspace) / "status.json",
        lambda value: value.update(message=f"cannot open {HOME}/x of {USER} with {HUB}", log_lines=[LINE]),
    )
    for run in workspace.folder.glob("results/runs/*/status.json"):  # as if the run had been measured so
        edit_json(run, lambda value, run=run: value.update(seal=seal_of(run.parent, value).model_dump(mode="json")))


def plant_in_manifest(value):
    value["command"] += ["--api-key", KEY, f"{HOME}/model"]
    value["environment_variables"] |= {"HF_TOKEN": HUB, "EXTRA": f"http://{PROXY}"}
    value["placement"]["batch"]["node"] = "node-of-the-cluster-5"


def run_script(workspace, *arguments):
    done = workspace.call(sys.executable, *arguments, **ENVIRONMENT)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def archive(finished, tmp_path_factory):
    """The archive of a study with everything planted, its tables and report made after that."""
    workspace: Workspace = finished.copy(tmp_path_factory.mktemp("planted") / "tiny")
    plant(workspace)
    workspace.snakemake()
    report = (workspace.folder / "results/studies/tiny/report.html").read_text()
    assert USER in report, "what is planted gets as far as the report"
    assert ": is consistent: " in run_script(workspace, "scripts/archive.py", *ARCHIVE_STUDY)
    (path,) = (workspace.folder / "results/archives").glob("*.zip")
    return workspace, path


def markdown(word):
    return re.sub(r"([_*-])", r"\\\1", word)


def texts(name, content):
    """What a reader can get out of a member: its bytes, and what is packed in them."""
    yield content
    if name.endswith(".parquet"):
        file = pq.ParquetFile(BytesIO(content))
        yield json.dumps(file.read().to_pylist(), ensure_ascii=False, default=str).encode()
        yield repr((file.schema_arrow.metadata, file.metadata.to_dict())).encode()


def test_nothing_planted_is_in_the_archive(archive):
    workspace, path = archive
    words = [*PLANTED, HOME, str(workspace.folder)]
    forms = {form for word in words for form in (word, json.dumps(word)[1:-1], html.escape(word), markdown(word))}
    raw = path.read_bytes()
    found = [("the zip itself", word) for word in forms if word.encode() in raw]
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            for text in texts(name, file.read(name)):
                found += [(name, word) for word in forms if word.encode() in text]
        manifest = json.loads(file.read("manifest.json"))
    assert found == []
    changed = [name for name, member in manifest["members"].items() if member["redacted"]]
    # tables and pages are made again from records that are redacted
    for part in ("server.log", "status.json", "manifest.json", "requests.parquet"):
        assert any(name.endswith(part) for name in changed), (part, changed)
    assert "workflow/config/config.yaml" in changed
    for made in ("stages.parquet", "table.parquet", "report.html"):
        assert any(name.endswith(made) for name in manifest["members"]), made
