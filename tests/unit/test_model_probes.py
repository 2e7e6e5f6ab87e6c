"""What model sources answer before anything is fetched: a hub on loopback, paths, and pip."""

from __future__ import annotations

import hashlib
import json
import stat
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from made_preflight import CONFIG, make_model

from servelab.assets.sources import MODEL_PROBES
from servelab.core.run_spec import HubSource, PackageSource, PathSource

REVISION = "0123456789abcdef0123456789abcdef01234567"
SOURCE = HubSource(id="o/m", revision=REVISION)
FILES = {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": b"{}", "model.safetensors": b"w" * 1000}


class Hub(BaseHTTPRequestHandler):
    """The hub's answers on one repository; `refusal` is status and `X-Error-Code` of all but its description."""

    refusal: tuple[int, str] | None = None
    refuses_description = True

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        described = self.path.startswith("/api/")
        if self.refusal and (self.refuses_description or not described):
            status, code = self.refusal
            self.answer(status, b"{}", {"X-Error-Code": code})
        elif described:
            siblings = [{"rfilename": name, "size": len(data)} for name, data in FILES.items()]
            self.answer(200, json.dumps({"id": "o/m", "sha": REVISION, "siblings": siblings}).encode(), {})
        else:
            data = FILES[self.path.rpartition("/")[2]]
            self.answer(200, data, {"X-Repo-Commit": REVISION, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()
        thread.join()


def probe(source):
    return MODEL_PROBES.get(source.kind)(source, 5.0)


def test_hub_has_it(hub):
    answer = probe(SOURCE)
    assert answer.there is True
    assert answer.files == {name: len(data) for name, data in FILES.items()}
    assert answer.config == CONFIG


@pytest.mark.parametrize(
    ("refusal", "there", "saw", "action"),
    [
        ((404, "RevisionNotFound"), False, f"has no revision {REVISION}", "name another revision"),
        ((404, "RepoNotFound"), False, "has no such repository", "set HF_TOKEN"),
        ((403, "GatedRepo"), False, "gated, and this account has no access", "accept its terms"),
        ((503, ""), None, "no answer from", "run this on a machine that reaches the hub"),
    ],
)
def test_hub_refuses(hub, monkeypatch, refusal, there, saw, action):
    monkeypatch.setattr(Hub, "refusal", refusal)
    answer = probe(SOURCE)
    assert answer.there is there
    assert saw in answer.saw
    assert action in answer.action


def test_path_is_there_or_not(tmp_path):
    path = make_model(tmp_path / "model")
    assert set(probe(PathSource(path=str(path), revision="1")).files) == set(FILES)
    answer = probe(PathSource(path=str(path / "none"), revision="1"))
    assert (answer.there, answer.saw) == (False, f"{path / 'none'}: No such file or directory")


def package(version):
    return PackageSource(requirement=f"a-model=={version}", member="a/m.gguf", sha256="0" * 64, size_bytes=9)


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A double of pip that answers as `pip index versions` does."""

    def answer(text, error="", status=0):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\ncat >&2 <<'EOF'\n{error}\nEOF\nexit {status}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(program))

    return answer


def test_package_is_listed_or_not(pip):
    pip("a-model (0.2.0)\nAvailable versions: 0.2.0, 0.1.2, 0.1.1")
    answer = probe(package("0.1.2"))
    assert (answer.there, answer.files) == (True, {"m.gguf": 9})
    assert probe(package("0.1")).there is False
    pip("", "WARNING: retrying\nERROR: No matching distribution found for a-model", 1)
    answer = probe(package("0.1.2"))
    assert answer.there is None
    assert "No matching distribution found" in answer.saw
