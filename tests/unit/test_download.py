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
        self.ranges: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: StubServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.ranges.append(asked)
        fault = next(self.server.faults, "none")
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body, start = self.server.body, 0 if fault == "no range" else int(asked.removeprefix("bytes=").rstrip("-"))
        if start >= len(body):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            sent_start = start + 1 if fault == "wrong range" else start
            self.send_header("Content-Range", f"bytes {sent_start}-{len(body) - 1}/{len(body)}")
        if fault != "no length":
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = (start + len(body)) // 2 if fault in ("cut", "no length") else len(body)
        self.wfile.write(body[start:end])


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


def part_of(destination: Path) -> Path:
    return destination.with_name(destination.name + ".part")


@pytest.mark.parametrize("faults", [[], ["cut"], ["cut", "cut", "503", "cut"], ["no length"], ["429", "500"]])
def test_file_arrives_whole_despite_faults(server: StubServer, destination: Path, faults: list[str]) -> None:
    server.faults = iter(faults)
    pauses = fetch(server, destination)
    assert destination.read_bytes() == BODY
    assert not part_of(destination).exists()
    assert len(pauses) == len(faults)


def test_interrupted_download_is_resumed_where_it_stopped(server: StubServer, destination: Path) -> None:
    destination.parent.mkdir()
    part_of(destination).write_bytes(BODY[:1000])
    fetch(server, destination)
    assert server.ranges == ["bytes=1000-"]
    assert destination.read_bytes() == BODY


def test_damaged_part_is_fetched_anew_once(server: StubServer, destination: Path) -> None:
    destination.parent.mkdir()
    part_of(destination).write_bytes(b"x" * 1000)
    fetch(server, destination)
    assert server.ranges == ["bytes=1000-", "bytes=0-"]
    assert destination.read_bytes() == BODY


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
