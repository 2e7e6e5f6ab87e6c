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
TIMEOUT_S = 30.0
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


def download(url: str, destination: Path, content: Content, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Downloads `url` to `destination`, unless the pinned content is already there.

    After a fault of the network or the server it begins again. `ServelabError` if the source refuses, does not answer
    or has other content; `Outage` if the disk cannot be written.
    """
    if holds(destination, content):
        return
    import httpx

    fault = ""
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT_S) as client:
        for attempt in range(ATTEMPTS):
            if attempt:
                pause_s = FIRST_PAUSE_S * 2 ** (attempt - 1)
                text = f"{url}: {fault}; trying again in {pause_s:.0f} s"
                print(without_credentials(text), file=sys.stderr, flush=True)
                sleep(pause_s)
            try:
                write_pinned(destination, content, _blocks(client, url, destination.name, content))
                return
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise ServelabError(f"{url}: {error}") from None
            except httpx.HTTPError as error:
                fault = str(error) or type(error).__name__
    raise ServelabError(f"{url}: given up after {ATTEMPTS} attempts: {fault}")


def _blocks(client: httpx.Client, url: str, name: str, content: Content) -> Iterator[bytes]:
    """The answer to one request, as it arrives; `httpx.HTTPError` for a fault that may be gone at the next one."""
    import httpx

    # `identity`: the bytes of a compressed answer are not those of the file.
    with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
        status, length = response.status_code, response.headers.get("Content-Length", "")
        if status in RETRIED_STATUS:
            raise httpx.HTTPError(f"HTTP {status}")
        if status != HTTPStatus.OK:
            raise ServelabError(f"{url}: HTTP {status} {response.reason_phrase}".rstrip())
        if length.isdigit() and int(length) != content.size_bytes:
            raise ContentError(f"{url}: the file has {int(length):,} bytes, not the pinned {content.size_bytes:,}")
        # shown on a terminal only; a bar moves the cursor
        bar = tqdm(desc=name, total=content.size_bytes, unit="B", unit_scale=True, disable=None, file=sys.__stderr__)
        received = 0
        with bar:
            for block in response.iter_raw():
                yield block
                received += len(block)
                bar.update(len(block))
    if received < content.size_bytes:
        raise httpx.HTTPError(f"truncated: {received:,} of {content.size_bytes:,} bytes received")


class UrlFile(FileSource):
    """A file at a plain URL."""

    kind: Literal["url"] = "url"
    url: str = Field(description="Address, http or https.", pattern=r"^https?://")

    def fetch(self, content: Content, destination: Path) -> None:
        download(self.url, destination, content)

    def describe(self) -> str:
        return self.url


FILE_SOURCES.register("url", UrlFile)
