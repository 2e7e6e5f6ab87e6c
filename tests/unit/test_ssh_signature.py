"""Signatures by a real `ssh-keygen`: who signed, and everything that must not pass for a signature."""

import os
import re
import subprocess

import pytest
from pydantic import ValidationError
from ssh_keys import IDENTITY, allow, make_key, signing_key

from servelab.archive.layout import check_signature, sign_archive
from servelab.archive.restore import restore_archive
from servelab.core.errors import ConfigError, ServelabError
from servelab.core.ssh_signature import BadSignatureError, SigningKey, check_key, sign_file, verify_file


@pytest.fixture
def key(tmp_path):
    return make_key(tmp_path / "key")


@pytest.fixture
def message(tmp_path):
    (tmp_path / "message").write_bytes(b"figures\n" * 100_000)
    return tmp_path / "message"


@pytest.fixture
def allowed(tmp_path, key):
    return allow(tmp_path / "allowed", key)


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_signature_says_who_signed(kind, tmp_path, message):
    key = make_key(tmp_path / kind, kind=kind)
    signature = sign_file(signing_key(key), message)
    assert signature == message.with_name("message.sig")
    allowed = allow(tmp_path / "allowed", make_key(tmp_path / "another"), key)
    signer = verify_file(message, signature, allowed)
    assert signer.identity == IDENTITY and "key SHA256:" in signer.key


def test_a_signature_for_another_purpose(key, message, allowed):
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", key, message]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(BadSignatureError, match="it was made for another purpose than `servelab`"):
        verify_file(message, message.with_name("message.sig"), allowed)


def cannot(key):
    with pytest.raises(ConfigError) as error:
        check_key(signing_key(key))
    assert "\n" not in str(error.value) and str(key) in str(error.value)
    return str(error.value)


def test_a_passphrase_needs_an_agent(tmp_path, monkeypatch, message, allowed):
    """It is found out before anything starts, and nobody is asked: a job has no terminal."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = make_key(tmp_path / "locked", passphrase="a long secret")
    assert f"run `ssh-add {key}`" in cannot(key)
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        monkeypatch.setenv("SSH_ASKPASS", str(tmp_path / "askpass"))
        (tmp_path / "askpass").write_text("#!/bin/sh\necho 'a long secret'\n")
        (tmp_path / "askpass").chmod(0o700)
        while not socket.exists():
            assert agent.poll() is None
        given = os.environ | {"SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", key], check=True, env=given, stdin=subprocess.DEVNULL)
        check_key(signing_key(key))
        check_key(signing_key(key.with_suffix(".pub")))
    finally:
        agent.terminate()
        agent.wait()


def test_a_key_that_is_missing_readable_by_all_or_none_at_all(tmp_path, key):
    assert "there is no such key" in cannot(tmp_path / "nowhere")
    (tmp_path / "text").write_text("no key\n")
    cannot(tmp_path / "text")
    key.chmod(0o644)
    if os.geteuid() == key.stat().st_uid:
        assert f"chmod 600 {key}" in cannot(key)


def test_without_ssh_keygen(key, monkeypatch, tmp_path, message):
    signature = sign_file(signing_key(key), message)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="ssh-keygen: not installed; install OpenSSH's client"):
        check_key(signing_key(key))
    with pytest.raises(ServelabError, match="ssh-keygen: not installed; install OpenSSH's client"):
        verify_file(message, signature, allow(tmp_path / "allowed", key))


def test_a_key_in_place_of_its_file_is_refused_and_not_repeated(key):
    with pytest.raises(ValidationError, match="name the file of the key"):
        SigningKey(key=key.read_text(), identity=IDENTITY)


# of archives


@pytest.fixture
def archive(message):
    return message.rename(message.with_name("x.zip"))


def test_a_signed_archive(archive, key, tmp_path):
    assert sign_archive(archive, signing_key(key)) == f"signed as {IDENTITY} in {archive}.sig"
    found = check_signature(archive, allow(tmp_path / "allowed", key))
    assert found.faults == () and found.text == f"signed by {found.signer}" and found.signer.identity == IDENTITY


def test_an_unsigned_archive_says_so_and_is_none_that_you_trust(archive, key, tmp_path):
    for allowed in (None, allow(tmp_path / "allowed", key)):
        found = check_signature(archive, allowed)
        assert (found.text, found.signer, found.faults) == ("unsigned, so by whom is not known", None, ())
        with pytest.raises(ServelabError, match=r"x\.zip: not signed: .*--accept-unsigned.*; nothing was restored"):
            restore_archive(archive, tmp_path / "results", tmp_path, allowed)


def other_key(archive, key, tmp_path):
    sign_archive(archive, signing_key(make_key(tmp_path / "thief")))
    return allow(tmp_path / "allowed", key)


def altered(archive, key, tmp_path):
    sign_archive(archive, signing_key(key))
    archive.write_bytes(archive.read_bytes()[:-1] + b"!")
    return allow(tmp_path / "allowed", key)


def expired(archive, key, tmp_path):
    sign_archive(archive, signing_key(key))
    return allow(tmp_path / "allowed", key, options='valid-before="20200101"')


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (other_key, r".*/allowed does not say whose ED25519 key SHA256:.*"),
        (altered, "what it signs was changed"),
        (expired, ".*"),
    ],
)
def test_what_is_no_signature_of_somebody_you_trust(forge, said, archive, key, tmp_path):
    found = check_signature(archive, forge(archive, key, tmp_path))
    assert found.signer is None and found.text == "not signed by anyone you trust"
    (fault,) = found.faults
    assert re.fullmatch(re.escape(f"{archive}.sig: does not count: ") + said, fault)
