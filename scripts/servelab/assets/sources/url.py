"""A file at a plain URL, and its download with resume: docs/architecture.md says why it is our own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import httpx
from pydantic import Field
from tqdm import tqdm

from servelab.assets.pinned_file import Content, ContentError, PartFile, holds
from servelab.assets.sources import FILE_SOURCES, FileSource
from servelab.core.credentials import without_credentials
from servelab.core.errors import ServelabError

ATTEMPTS = 6
"""Attempts in a row without a new byte after which a source is given up."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
TIMEOUT = httpx.Timeout(30.0)
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class _TryAgainError(Exception):
    """A fault that may be gone at the next attempt; `pause_s` is the pause that the server asked for."""

    def __init__(self, message: str, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.pause_s = pause_s


def download(
    url: str,
    destination: Path,
    content: Content,
    *,
    headers: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Downloads `url` to `destination`, unless the pinned content is already there.

    After a fault of the network or the server it resumes at the byte where it stopped. `ServelabError` if the source
    refuses, does not answer or has other content; `Outage` if the disk cannot be written.
    """
    if holds(destination, content):
        return
    fruitless, resumed_wrongly = 0, False
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT, headers=dict(headers or {})) as client:
        while True:
            with PartFile(destination, content, resume=True) as part:
                start_bytes = part.size_bytes
                try:
                    if start_bytes < content.size_bytes:
                        _receive(client, url, part)
                    part.finish()
                    return
                except ContentError:
                    # The kept bytes may be damaged or from another version: fetch the whole file again, once.
                    if start_bytes == 0 or resumed_wrongly:
                        raise
                    resumed_wrongly = True
                    continue
                except _TryAgainError as fault:
                    fruitless = 0 if part.size_bytes > start_bytes else fruitless + 1
                    if fruitless == ATTEMPTS:
                        raise ServelabError(f"{url}: given up after {ATTEMPTS} attempts: {fault}") from None
                    pause_s = min(fault.pause_s or FIRST_PAUSE_S * 2 ** (fruitless - 1), LONGEST_PAUSE_S)
                    text = f"{url}: {fault}; trying again in {pause_s:.0f} s"
                    print(without_credentials(text), file=sys.stderr, flush=True)
            sleep(pause_s)


def _receive(client: httpx.Client, url: str, part: PartFile) -> None:
    """Sends one request for the missing bytes and writes them to the part as they arrive."""
    # `identity`: the bytes of a compressed answer are not those of the file.
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={part.size_bytes}-"}
    try:
        with client.stream("GET", url, headers=headers) as response:
            _check_answer(response, url, part)
            with tqdm(
                desc=part.destination.name,
                total=part.content.size_bytes,
                initial=part.size_bytes,
                unit="B",
                unit_scale=True,
                disable=None,  # shown on a terminal only
                file=sys.__stderr__,  # a bar moves the cursor
            ) as progress:
                for block in response.iter_raw():
                    part.write(block)
                    progress.update(len(block))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ServelabError(f"{url}: {error}") from None
    except httpx.HTTPError as error:
        raise _TryAgainError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
    if part.size_bytes < part.content.size_bytes:
        raise _TryAgainError(f"truncated: {part.size_bytes:,} of {part.content.size_bytes:,} bytes received")


def _check_answer(response: httpx.Response, url: str, part: PartFile) -> None:
    """Raises unless the status is 200 or 206; empties the part if the server sends the file from the beginning."""
    status = response.status_code
    if status in RETRIED_STATUS:
        asked = response.headers.get("Retry-After", "")
        raise _TryAgainError(f"HTTP {status}", float(asked) if asked.isdigit() else None)
    if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        part.discard()
        raise ContentError(f"{url}: the file is shorter than the pinned {part.content.size_bytes:,} bytes")
    if status == httpx.codes.PARTIAL_CONTENT:
        content_range = response.headers.get("Content-Range", "")
        if not content_range.startswith(f"bytes {part.size_bytes}-"):
            part.restart()
            raise _TryAgainError("the server sent another range than requested")
        total = content_range.rpartition("/")[2]
    elif status == httpx.codes.OK:
        part.restart()
        total = response.headers.get("Content-Length", "")
    else:
        raise ServelabError(f"{url}: HTTP {status} {response.reason_phrase}".rstrip())
    if total.isdigit() and int(total) != part.content.size_bytes:
        raise ContentError(f"{url}: the file has {int(total):,} bytes, not the pinned {part.content.size_bytes:,}")


class UrlFile(FileSource):
    """A file at a plain URL."""

    kind: Literal["url"] = "url"
    url: str = Field(description="Address, http or https.", pattern=r"^https?://")

    def fetch(self, content: Content, destination: Path) -> None:
        download(self.url, destination, content)

    def describe(self) -> str:
        return self.url


FILE_SOURCES.register("url", UrlFile)
