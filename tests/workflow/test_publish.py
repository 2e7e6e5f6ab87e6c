"""Archives handed over to a server of S3's protocol on loopback."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import httpx
import pytest
import yaml
from patience import until
from ssh_keys import IDENTITY, allow, make_key, signing_key
from workspace import Workspace

from servelab.archive.layout import RunPlace
from servelab.archive.shared_runs import SharedRuns
from servelab.core.errors import ServelabError
from servelab.core.identity import file_sha256
from servelab.core.processes import Supervised
from servelab.core.seal import faults_of_seal
from servelab.machine.lease import lease_ports
from servelab.measure.run_files import read_import

pytestmark = pytest.mark.slow
KEY, SECRET = "AKEYTHATISPLANTED", "a-secret-that-is-planted"
RECORDED = ["studies=[]", "recorded=[example]"]


class Publishing:
    """A project with a finished study, and the environment to publish it from."""

    def __init__(self, workspace: Workspace, programs: Path) -> None:
        self.workspace, self.programs = workspace, programs

    def __call__(self, place: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """What `make publish` runs."""
        command = [self.programs / "snakemake", "--profile", "profiles/default", *arguments]
        command += ["--config", *RECORDED, f"publish={place}", "--", "publish"]
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SNAKEMAKE_STORAGE_"))
        }
        kept |= {"HOME": str(self.workspace.folder), "PYTHONPATH": str(self.workspace.folder / "scripts")}
        return subprocess.run(
            command,
            cwd=self.workspace.folder,
            env=kept | {"PATH": f"{self.programs}:{os.environ['PATH']}"} | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def archives(self) -> list[Path]:
        return sorted((self.workspace.folder / "results/archives").rglob("*.zip"))

    def holds(self, word: str) -> list[str]:
        """Files below the project that a word is in, members of archives among them."""
        found = []
        for path in (path for path in self.workspace.folder.rglob("*") if path.is_file() and not path.is_symlink()):
            if word.encode() in path.read_bytes():
                found.append(str(path))
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    found += [f"{path}: {name}" for name in archive.namelist() if word.encode() in archive.read(name)]
        return found


@pytest.fixture(scope="module")
def publish(archived_example, tmp_path_factory, publish_programs):
    """The archive is still to be made and signed: handing it over asks for it."""
    folder = tmp_path_factory.mktemp("publish")
    workspace = archived_example.copy(folder / "project")
    sign = signing_key(make_key(folder / "key")).model_dump()
    workspace.write("config/config.yaml", yaml.safe_dump({"studies": [], "sign": sign}))
    publishing = Publishing(workspace, publish_programs)
    for archive in publishing.archives():
        archive.unlink()
    return publishing


class Bucket:
    """A server of S3's protocol; its objects are files."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder

    @property
    def arguments(self) -> list[str]:
        return ["--storage-s3-endpoint-url", self.address]

    def objects(self) -> dict[str, bytes]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        hidden = [path for path in files if any(part.startswith(".") for part in path.relative_to(self.folder).parts)]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files if path not in hidden}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory, publish_programs):
    folder = tmp_path_factory.mktemp("s3")
    (folder / "data").mkdir()
    ports = lease_ports("127.0.0.1")
    command = [str(publish_programs / "nanio"), "serve", "--data-dir", str(folder / "data"), "--host", "127.0.0.1"]
    running = Supervised(
        [*command, "--port", str(ports.ports[0])],
        environment={**os.environ, "NANIO_ACCESS_KEY": KEY, "NANIO_SECRET_KEY": SECRET},
        log=folder / "server.log",
        keep_open=ports.descriptors,
    )
    address = f"http://127.0.0.1:{ports.ports[0]}"

    def answers():
        assert running.poll() is None, (folder / "server.log").read_text()
        try:
            return httpx.get(address, trust_env=False).status_code
        except httpx.HTTPError:
            return None

    try:
        until(answers, "the server answers")
        yield Bucket(address, folder / "data")
    finally:
        running.stop()
        ports.release()


def test_an_archive_and_its_signature_are_handed_over_to_s3(publish, bucket, tmp_path):
    keys = {"SNAKEMAKE_STORAGE_S3_ACCESS_KEY": KEY, "SNAKEMAKE_STORAGE_S3_SECRET_KEY": SECRET}
    place = "s3://studies/of/servelab"

    asked = publish(place, "-n", *bucket.arguments, **keys)
    assert asked.returncode == 0, asked.stdout[-3000:]
    assert bucket.objects() == {}

    done = publish(place, *bucket.arguments, **keys)
    assert done.returncode == 0, done.stdout[-6000:]
    (archive,) = publish.archives()
    name = archive.relative_to(publish.workspace.folder / "results/archives")
    signature = archive.with_name(f"{archive.name}.sig")
    handed_over = {f"studies/of/servelab/{name}{end}": path for end, path in (("", archive), (".sig", signature))}
    assert bucket.objects() == {name: path.read_bytes() for name, path in handed_over.items()}
    for name, content in bucket.objects().items():
        (tmp_path / Path(name).name).write_bytes(content)
    signers = allow(tmp_path / "signers", publish.workspace.folder.with_name("key"))
    verify = ["python", "scripts/verify_archive.py", "--allowed-signers", signers, tmp_path / archive.name]
    verified = subprocess.run(
        verify,
        cwd=publish.workspace.folder,
        env=publish.workspace.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"signed by {IDENTITY}" in verified.stdout and ": holds: " in verified.stdout

    again = publish(place, *bucket.arguments, **keys)
    assert again.returncode == 0, again.stdout[-3000:]
    assert "Nothing to be done" in again.stdout

    for word in (KEY, SECRET):
        assert word not in asked.stdout + done.stdout + again.stdout
        assert publish.holds(word) == []


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"SNAKEMAKE_STORAGE_S3_ACCESS_KEY": KEY, "SNAKEMAKE_STORAGE_S3_SECRET_KEY": SECRET + "x"}, "Forbidden"),
        ({}, "credentials"),
    ],
    ids=["wrong key", "no key"],
)
def test_without_the_right_key_nothing_is_handed_over(keys, says, publish, bucket):
    before = bucket.objects()
    done = publish("s3://others/servelab", *bucket.arguments, **keys)
    assert done.returncode != 0
    assert says in done.stdout
    assert SECRET not in done.stdout and publish.holds(SECRET) == []
    assert bucket.objects() == before


def test_runs_are_taken_from_a_bucket(finished, archived_example, bucket, tmp_path, monkeypatch):
    """`runs_from` with what AWS's own tools read from the environment. The archive there is looked into, for no run."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.address)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    run_id, *_ = sorted(finished.runs())
    # its objects are files; it stores what pyarrow uploads with the marks of the upload's pieces
    (archive,) = (archived_example.folder / "results/archives").rglob("*.zip")
    shutil.copytree(finished.folder / "results/runs" / run_id, bucket.folder / "team/results/runs" / run_id)
    (bucket.folder / "team/archives").mkdir()
    shutil.copy2(archive, bucket.folder / "team/archives")
    lines = []
    places = [RunPlace(place="s3://team/archives"), RunPlace(place="s3://team/results")]
    shared = SharedRuns(places, tmp_path / "results", tmp_path / "kept", lines.append)
    assert shared.has(run_id) and shared.fetch(run_id) and lines == []
    taken = tmp_path / "results/runs" / run_id
    assert file_sha256(*(tmp_path / "kept").rglob(archive.name)) == file_sha256(archive)
    assert faults_of_seal(taken) == [] and read_import(taken).imports[0].origin == "s3://team/results"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET + "x")
    with pytest.raises(ServelabError, match="s3://team/results: cannot be read") as caught:
        SharedRuns([RunPlace(place="s3://team/results")], tmp_path / "b", tmp_path, lines.append).has(run_id)
    assert SECRET not in str(caught.value)
