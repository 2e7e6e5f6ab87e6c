"""Puts the stub servers of a test behind TLS, with a certificate made for the test."""

import asyncio
import shutil
import ssl
import subprocess
from functools import partial
from pathlib import Path

import pytest


def make_certificate(folder: Path) -> Path:
    """A certificate and its key, in one file, for 127.0.0.1; skips the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *names], check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + key.read_text())
    key.unlink()
    return certificate


def behind_tls(monkeypatch: pytest.MonkeyPatch, certificate: Path, **limits: ssl.TLSVersion) -> None:
    """Servers of asyncio that start from now on speak TLS; `limits` are attributes of their context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    for name, value in limits.items():
        setattr(context, name, value)
    monkeypatch.setattr(asyncio, "start_server", partial(asyncio.start_server, ssl=context))
