"""Signatures of runs, by real keys: what was measured counts, and nothing that was put in its place."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from types import SimpleNamespace

import made_run
import pytest
from made_results import write_run
from ssh_keys import IDENTITY, allow, make_key, signing_key

from servelab.core.identity import file_sha256
from servelab.core.seal import faults_of_seal, resealed
from servelab.core.ssh_signature import BadSignatureError, check_key
from servelab.measure import visits
from servelab.measure.run_files import RunStatus, check_run, is_signed, sign_run


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return SimpleNamespace(site=make_key(folder / "site"), thief=make_key(folder / "thief"), folder=folder)


@pytest.fixture
def allowed(keys, tmp_path):
    return allow(tmp_path / "allowed", keys.site)


def measured(folder, key, **changes):
    run = write_run(folder, made_run.spec(**changes))
    (run / "server.log").write_text("on machine-of-somebody\n")
    made_run.seal(run)
    sign_run(run, RunStatus.read(run / "status.json"), signing_key(key))
    return run


@pytest.fixture
def run(keys, tmp_path):
    return measured(tmp_path / "runs", keys.site)


def refused(run, allowed):
    with pytest.raises(BadSignatureError) as error:
        check_run(run, allowed)
    return str(error.value)


def test_a_run_as_it_was_measured(run, allowed):
    assert is_signed(run) and faults_of_seal(run) == []
    found = check_run(run, allowed)
    assert found.signer.identity == IDENTITY and found.redacted == []
    stated = json.loads((run / "signed.json").read_bytes())
    assert set(stated["files"]) == {path.name for path in run.iterdir()} - {
        "status.json",
        "signed.json",
        "signed.json.sig",
    }
    assert all(file_sha256(run / name) == sha256 for name, sha256 in stated["files"].items())


def test_any_openssh_verifies_it(run, allowed):
    command = ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", IDENTITY, "-n", "servelab", "-s"]
    command.append(run / "signed.json.sig")
    done = subprocess.run(command, input=(run / "signed.json").read_bytes(), capture_output=True, check=True)
    assert done.stdout.startswith(b'Good "servelab" signature for lab@example.org')


def test_no_part_of_the_key_is_in_a_run(run, keys):
    secret = keys.site.read_text().splitlines()[1:-1]
    text = b"".join(path.read_bytes() for path in run.iterdir()).decode(errors="replace")
    assert str(keys.site) not in text and not any(line in text for line in secret)


@pytest.mark.parametrize("name", ["requests.parquet", "spec.json"])
def test_a_file_changed_and_sealed_again(name, run, allowed):
    with (run / name).open("ab") as file:
        file.write(b" ")
    assert refused(run, allowed) == f"{name}: was changed"
    made_run.seal(run)
    assert name in refused(run, allowed) or name == "spec.json"


def test_a_file_added_or_removed_and_sealed_again(run, allowed):
    (run / "more.txt").write_text("x")
    made_run.seal(run)
    assert refused(run, allowed) == "more.txt: is in the seal or in signed.json, but not in both"
    (run / "more.txt").unlink()
    (run / "telemetry.parquet").unlink()
    made_run.seal(run)
    assert refused(run, allowed).startswith("telemetry.parquet: is in the seal or")


def test_the_signature_of_another_run(run, keys, allowed, tmp_path):
    other = measured(tmp_path / "runs", keys.site, protocol={"max_concurrency": 8})
    for name in ("signed.json", "signed.json.sig"):
        shutil.copy(other / name, run / name)
    assert refused(run, allowed) == f"signed.json: is of run {other.name}"


def test_digests_changed_with_what_they_are_of(run, allowed):
    stated = json.loads((run / "signed.json").read_bytes())
    with (run / "server.log").open("ab") as file:
        file.write(b" ")
    stated["files"]["server.log"] = file_sha256(run / "server.log")
    (run / "signed.json").write_text(json.dumps(stated))
    made_run.seal(run)
    assert refused(run, allowed) == "signed.json.sig: what it signs was changed"


def test_the_same_signed_by_another_key(run, keys, allowed):
    sign_run(run, RunStatus.read(run / "status.json"), signing_key(keys.thief))
    said = refused(run, allowed)
    assert said.startswith(f"signed.json.sig: {allowed} does not say that ED25519 key SHA256:")
    assert said.endswith(f" is {IDENTITY}'s")


@pytest.mark.parametrize("name", ["signed.json", "signed.json.sig"])
def test_half_a_signature(name, run, allowed):
    (run / name).unlink()
    assert is_signed(run) and refused(run, allowed) == f"{name}: missing"


def redact(run, name, text):
    """As an archive does it."""
    (run / name).write_text(text)
    status = json.loads((run / "status.json").read_bytes())
    changed = {name: (file_sha256(run / name), (run / name).stat().st_size)}
    (run / "status.json").write_text(json.dumps(resealed(status, changed)))


def test_what_an_archive_redacted_is_named(run, allowed):
    redact(run, "server.log", "on redacted-host\n")
    assert faults_of_seal(run) == [] and check_run(run, allowed).redacted == ["server.log"]
    redact(run, "server.log", "on redacted-host, twice\n")
    assert check_run(run, allowed).redacted == ["server.log"]


def test_a_key_that_is_lost_meanwhile_costs_no_run(keys, tmp_path, capsys):
    run = write_run(tmp_path / "runs", made_run.spec())
    key = make_key(tmp_path / "key")
    check_key(signing_key(key))
    key.unlink()
    status = RunStatus.read(run / "status.json")
    partial(visits._Job._sign, None)(run, status, signing_key(key))
    assert not is_signed(run) and faults_of_seal(run) == []
    assert f"run {run.name} is kept without a signature: sign.key: {key}" in capsys.readouterr().err
