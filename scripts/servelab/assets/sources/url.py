"""A file at a plain URL, and its download: docs/architecture.md says why it is our own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from tqdm import tqdm

from servelab.assets.pinned_file import Content, ContentError, holds, write_pinned
from servelab.assets.sources import FILE_SOURCES, FileSource
from servelab.core.credentials import without_credentials
from servelab.core.errors import ServelabError

if TYPE_CHECKING:
    import httpx  # slow to load, and every rule loads the sources

ATTEMPTS = 6
"""Attempts after which a source is given up."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
TIMEOUT_S = 30.0
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class _TryAgainError(Exception):
    """A fault that may be gone at the next attempt; `pause_s` is the pause that the server asked for."""

    def __init__(self, message: str, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.pause_s = pause_s


def download(url: str, destination: Path, content: Content, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Downloads `url` to `destination`, unless the pinned content is already there.

    After a fault of the network or the server it begins again. `ServelabError` if the source refuses, does not answer
    or has other content; `Outage` if the disk cannot be written.
    """
    if holds(destination, content):
        return
    import httpx

    with httpx.Client(follow_redirects=True, timeout=TIMEOUT_S) as client:
        for attempt in range(ATTEMPTS):
            try:
                write_pinned(destination, content, _blocks(client, url, destination.name, content))
                return
            except _TryAgainError as fault:
                if attempt + 1 == ATTEMPTS:
                    raise ServelabError(f"{url}: given up after {ATTEMPTS} attempts: {fault}") from None
                pause_s = min(fault.pause_s or FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
                text = f"{url}: {fault}; trying again in {pause_s:.0f} s"
                print(without_credentials(text), file=sys.stderr, flush=True)
            sleep(pause_s)


def _blocks(client: httpx.Client, url: str, name: str, content: Content) -> Iterator[bytes]:
    """The answer to one request, as it arrives."""
    import httpx

    received = 0
    try:
        # `identity`: the bytes of a compressed answer are not those of the file.
        with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            _check_answer(response, url, content)
            with tqdm(
                desc=name,
                total=content.size_bytes,
                unit="B",
                unit_scale=True,
                disable=None,  # shown on a terminal only
                file=sys.__stderr__,  # a bar moves the cursor
            ) as progress:
                for block in response.iter_raw():
                    yield block
                    received += len(block)
                    progress.update(len(block))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ServelabError(f"{url}: {error}") from None
    except httpx.HTTPError as error:
        raise _TryAgainError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
    if received < content.size_bytes:
        raise _TryAgainError(f"truncated: {received:,} of {content.size_bytes:,} bytes received")


def _check_answer(response: httpx.Response, url: str, content: Content) -> None:
    """Raises unless the status is 200 and the length the pinned one, if it is given."""
    status, length = response.status_code, response.headers.get("Content-Length", "")
    if status in RETRIED_STATUS:
        asked = response.headers.get("Retry-After", "")
        raise _TryAgainError(f"HTTP {status}", float(asked) if asked.isdigit() else None)
    if status != HTTPStatus.OK:
        raise ServelabError(f"{url}: HTTP {status} {response.reason_phrase}".rstrip())
    if length.isdigit() and int(length) != content.size_bytes:
        raise ContentError(f"{url}: the file has {int(length):,} bytes, not the pinned {content.size_bytes:,}")


class UrlFile(FileSource):
    """A file at a plain URL."""

    kind: Literal["url"] = "url"
    url: str = Field(description="Address, http or https.", pattern=r"^https?://")

    def fetch(self, content: Content, destination: Path) -> None:
        download(self.url, destination, content)

    def describe(self) -> str:
        return self.url


FILE_SOURCES.register("url", UrlFile)
