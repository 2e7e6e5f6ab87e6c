"""Downloads pinned files over HTTP: streamed, resumed by range, retried with back-off, checked by sha256."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from servelab.content import Content, ContentError, PartFile, holds
from servelab.credentials import without_credentials
from servelab.errors import ServelabError
from servelab.progress import Progress

ATTEMPTS = 6
"""Tries in a row that may bring no byte before a source is given up."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
TIMEOUT = httpx.Timeout(30.0)
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class _TryAgainError(Exception):
    """A fault that a later try may not meet; `pause_s` is what the server asked for."""

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
    """Brings `url` to `destination`, unless the pinned content is there already.

    Faults of the network and of the server (5xx, 429) are retried from the byte where they struck, with pauses
    that double up to `LONGEST_PAUSE_S`; only tries that bring nothing count towards `ATTEMPTS`.

    Raises:
        ServelabError: the source refuses, stays away, or gives other content.
        Outage: the disk is full or cannot be written.
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
                    # The kept bytes may be of another version, or damaged: once, all is fetched anew.
                    if start_bytes == 0 or resumed_wrongly:
                        raise
                    resumed_wrongly = True
                    continue
                except _TryAgainError as fault:
                    fruitless = 0 if part.size_bytes > start_bytes else fruitless + 1
                    if fruitless == ATTEMPTS:
                        raise ServelabError(f"{url}: given up after {ATTEMPTS} tries: {fault}") from None
                    pause_s = min(fault.pause_s or FIRST_PAUSE_S * 2 ** (fruitless - 1), LONGEST_PAUSE_S)
                    text = f"{url}: {fault}; trying again in {pause_s:.0f} s"
                    print(without_credentials(text), file=sys.stderr, flush=True)
            sleep(pause_s)


def _receive(client: httpx.Client, url: str, part: PartFile) -> None:
    """One request for what is missing, written to the part as it arrives."""
    # `identity`: a compressed answer would count and hash other bytes than the file's.
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={part.size_bytes}-"}
    try:
        with client.stream("GET", url, headers=headers) as response:
            _check_answer(response, url, part)
            with Progress(part.destination.name, part.content.size_bytes, part.size_bytes) as progress:
                for block in response.iter_raw():
                    part.write(block)
                    progress.advance(len(block))
    except httpx.InvalidURL as error:
        raise ServelabError(f"{url}: not a valid URL: {error}") from None
    except httpx.UnsupportedProtocol as error:
        raise ServelabError(f"{url}: {error}") from None
    except httpx.HTTPError as error:
        raise _TryAgainError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
    if part.size_bytes < part.content.size_bytes:
        raise _TryAgainError(f"truncated: {part.size_bytes:,} of {part.content.size_bytes:,} bytes came")


def _check_answer(response: httpx.Response, url: str, part: PartFile) -> None:
    """Lets 200 and 206 pass, with the part set back where the server starts from the beginning."""
    status = response.status_code
    if status in RETRIED_STATUS:
        asked = response.headers.get("Retry-After", "")
        raise _TryAgainError(f"HTTP {status}", float(asked) if asked.isdigit() else None)
    if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        part.discard()
        raise ContentError(f"{url}: the file there is shorter than the pinned {part.content.size_bytes:,} bytes")
    if status == httpx.codes.PARTIAL_CONTENT:
        content_range = response.headers.get("Content-Range", "")
        if not content_range.startswith(f"bytes {part.size_bytes}-"):
            part.restart()
            raise _TryAgainError("the server sent another range than the one asked for")
        total = content_range.rpartition("/")[2]
    elif status == httpx.codes.OK:
        part.restart()
        total = response.headers.get("Content-Length", "")
    else:
        raise ServelabError(f"{url}: HTTP {status} {response.reason_phrase}".rstrip())
    if total.isdigit() and int(total) != part.content.size_bytes:
        raise ContentError(
            f"{url}: the file there has {int(total):,} bytes, not the pinned {part.content.size_bytes:,}"
        )
