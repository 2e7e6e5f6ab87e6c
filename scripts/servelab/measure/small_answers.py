"""Asks a server for a short answer, within a limit of bytes and of time, whatever the server sends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx

MOST_BYTES = 1 << 16
"""Size of an answer; a longer one counts as none."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    content: bytes


def ask(method: str, url: str, timeout_s: float, body: Mapping[str, Any] | None = None) -> Answer | None:
    """The server's answer; None if it sends none that is whole, of at most `MOST_BYTES`, within the time.

    `body` is sent as JSON.
    """
    return asyncio.run(_ask(method, url, timeout_s, body))


async def _ask(method: str, url: str, timeout_s: float, body: Mapping[str, Any] | None) -> Answer | None:
    content = bytearray()
    try:  # without a timeout of httpx, which is one of each read: a server that sends a byte at a time never reaches it
        async with (
            asyncio.timeout(timeout_s),
            # reading the certificates takes longer than a small answer
            httpx.AsyncClient(trust_env=False, timeout=None, verify=url.startswith("https:")) as client,  # noqa: S113
            client.stream(method, url, headers={"Accept-Encoding": "identity"}, json=body) as answer,
        ):
            async for part in answer.aiter_raw():
                content += part
                if len(content) > MOST_BYTES:
                    return None
            return Answer(answer.status_code, bytes(content))
    except (httpx.HTTPError, TimeoutError):
        return None
