"""The load client over TLS and with a key: the records of a plain connection, and no trace of the key."""

import ssl
import subprocess
import sys

import pytest
from behind_tls import behind_tls, make_certificate
from endpoint_stub import MODEL, EndpointStub
from made_load import OUTPUT_TOKENS, load, plan_for
from stub_server import StubServer
from test_load import SUCCESSES

from servelab.core.errors import ConfigError
from servelab.measure.clients import CLIENTS

KEY = "-".join(("sk", "never", "to", "be", "seen", "7730"))  # in one piece no archive would take this file


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def secured(certificate, monkeypatch):
    """Stubs speak TLS, and the client trusts their certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    behind_tls(monkeypatch, certificate)


def over_tls(url):
    return url.replace("http://", "https://")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_answers_of_every_form_are_read(version, certificate, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    behind_tls(monkeypatch, certificate, minimum_version=version, maximum_version=version)
    with StubServer().running() as url:
        records = load(tmp_path, over_tls(url), list(SUCCESSES))
    for (behaviour, chunks), record in zip(SUCCESSES.items(), records, strict=True):
        assert record["error"] is None, (behaviour, record["error"])
        assert record["chunks"] == chunks, behaviour
        assert record["output_tokens"] == OUTPUT_TOKENS


def test_a_certificate_that_is_not_trusted(certificate, tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    behind_tls(monkeypatch, certificate)
    with StubServer().running() as url:
        (record,) = load(tmp_path, over_tls(url), ["normal"])
    assert record["error"].startswith("connect_failed: [SSL: CERTIFICATE_VERIFY_FAILED]")
    assert record["sent_s"] is None


def test_the_key_is_sent_and_written_nowhere(secured, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    stub = EndpointStub(key=KEY)
    with stub.running() as url:
        sent = run(tmp_path / "right", over_tls(url))
        monkeypatch.setenv("MY_KEY", f"{KEY}0")
        stub.key = f"{KEY}0."  # its refusal repeats what begins with the key
        refused = run(tmp_path / "wrong", over_tls(url))
    assert [record["error"] for record in sent] == [None, None]
    assert all(f"\r\nAuthorization: Bearer {KEY}\r\n" in head for head in stub.heads[:2])
    assert all(record["error"].startswith("http_error: 401 wrong key, not ***") for record in refused)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) >= 8 and not any(KEY.encode() in file.read_bytes() for file in files)


def run(folder, url):
    """The records of the client's own process."""
    folder.mkdir()
    plan = plan_for(folder, url, ["two words", "three more words"], model=MODEL, api_key_env="MY_KEY")
    client = CLIENTS.get("servelab")
    command = client.command(plan, folder, sys.executable)
    with (folder / "log").open("wb") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    return client.read(plan, folder).records.to_pylist()


@pytest.mark.parametrize("settings", [{"base_url": "https://127.0.0.1:9"}, {"api_key_env": "MY_KEY"}])
def test_other_clients_refuse_both(settings, tmp_path):
    plan = plan_for(tmp_path, "http://127.0.0.1:9", ["normal"]).model_copy(update=settings)
    for name in ("guidellm", "vllm-bench"):
        with pytest.raises(ConfigError, match="use client `servelab`"):
            CLIENTS.get(name).command(plan, tmp_path, sys.executable)
