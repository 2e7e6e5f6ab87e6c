"""Signatures of archives as a whole, by real keys."""

from __future__ import annotations

import pytest
from ssh_keys import IDENTITY, allow, make_key, signing_key

from servelab.archive.layout import check_signature, sign_archive
from servelab.archive.restore import restore_archive
from servelab.core.errors import ServelabError


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"an archive" * 1000)
    return tmp_path / "x.zip"


@pytest.fixture
def key(tmp_path):
    return make_key(tmp_path / "key")


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


@pytest.mark.parametrize("forge", [other_key, altered, expired])
def test_what_is_no_signature_of_somebody_you_trust(forge, archive, key, tmp_path):
    found = check_signature(archive, forge(archive, key, tmp_path))
    assert found.signer is None and found.text == "not signed by anyone you trust"
    (fault,) = found.faults
    assert fault.startswith(f"{archive}.sig: does not count: ") and "\n" not in fault
