"""Downloads against a real HTTP server on loopback that can misbehave."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from servelab.assets.pinned_file import Content, ContentError
from servelab.assets.sources.url import ATTEMPTS, download
from servelab.core.errors import Outage, ServelabError

BODY = bytes(range(256)) * 4096
CONTENT = Content(size_bytes=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())


class StubServer(ThreadingHTTPServer):
    """Serves `body`; the first answers misbehave as `faults` say, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.faults: Iterator[str] = iter(())
        self.url = f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: StubServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        fault, body = next(self.server.faults, "none"), self.server.body
        self.send_response(int(fault) if fault.isdigit() else 200)
        if fault.isdigit():
            body = b""
        if fault != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault in ("cut", "no length") else body)


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer() as stub:
        thread = threading.Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield stub
        stub.shutdown()
        thread.join()


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "made" / "file.bin"


def fetch(server: StubServer, destination: Path, content: Content = CONTENT) -> list[float]:
    """Downloads, and gives the pauses that were asked for instead of sleeping."""
    pauses: list[float] = []
    download(server.url, destination, content, sleep=pauses.append)
    return pauses


@pytest.mark.parametrize("faults", [[], ["cut"], ["cut", "cut", "503", "cut"], ["no length"], ["429", "500"]])
def test_file_arrives_whole_despite_faults(server: StubServer, destination: Path, faults: list[str]) -> None:
    server.faults = iter(faults)
    pauses = fetch(server, destination)
    assert destination.read_bytes() == BODY
    assert list(destination.parent.iterdir()) == [destination]
    assert len(pauses) == len(faults)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (BODY[:-1] + b"x", "sha256 is"),
        (BODY[:-1], "1,048,575 bytes, not the pinned 1,048,576"),
        (BODY + b"x", "1,048,577 bytes, not the pinned 1,048,576"),
    ],
)
def test_other_content_is_refused_and_the_old_copy_stays(
    server: StubServer, destination: Path, body: bytes, message: str
) -> None:
    destination.parent.mkdir()
    destination.write_bytes(b"older version")
    server.body = body
    with pytest.raises(ContentError, match=message):
        fetch(server, destination)
    assert destination.read_bytes() == b"older version"


def test_server_that_stays_away_is_given_up_with_doubling_pauses(server: StubServer, destination: Path) -> None:
    server.faults = itertools.repeat("503")
    pauses: list[float] = []
    with pytest.raises(ServelabError, match=f"given up after {ATTEMPTS} attempts: HTTP 503"):
        download(server.url, destination, CONTENT, sleep=pauses.append)
    assert pauses == [1, 2, 4, 8, 16]


def test_full_disk_is_an_outage_and_the_old_copy_stays(
    server: StubServer, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination.parent.mkdir()
    destination.write_bytes(b"older version")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Outage, match="No space left on device"):
        fetch(server, destination)
    assert destination.read_bytes() == b"older version"
