"""A request to a server that has a small answer, all of it within a time."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import httpx

MOST_BYTES = 1 << 16
"""Size of an answer; a longer one counts as none."""


class SmallAnswer(NamedTuple):
    """A whole answer."""

    status: int
    content: bytes


def ask(method: str, url: str, timeout_s: float) -> SmallAnswer | None:
    """The server's answer; None if it sends none that is whole, of at most `MOST_BYTES`, within the time."""
    return asyncio.run(_ask(method, url, timeout_s))


async def _ask(method: str, url: str, timeout_s: float) -> SmallAnswer | None:
    content = bytearray()
    try:  # without a timeout of httpx, which is one of each read: a server that sends a byte at a time never reaches it
        async with (
            asyncio.timeout(timeout_s),
            # reading the certificates takes longer than a small answer
            httpx.AsyncClient(trust_env=False, timeout=None, verify=False) as client,  # noqa: S113, S501
            client.stream(method, url, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            async for part in answer.aiter_raw():
                content += part
                if len(content) > MOST_BYTES:
                    return None
            return SmallAnswer(answer.status_code, bytes(content))
    except (httpx.HTTPError, TimeoutError):
        return None
