"""The text of a streamed answer, read after the round from the bytes that arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

MOST_CHARACTERS = 1 << 16
"""Characters of an answer that are kept."""
_FIELDS = ("reasoning_content", "reasoning", "content", "text")
"""Fields of a piece that hold text; what a model reasons comes before what it answers."""


_SAID = ("content", "text")


def said_in(body: bytes) -> str:
    """What the model answered, as the next turn of a conversation repeats it: without what it reasoned before."""
    return text_of(body, _SAID)


def text_of(body: bytes, fields: Sequence[str] = _FIELDS) -> str:
    """The text in a body of server-sent events, at most its first `MOST_CHARACTERS`; what is no event adds nothing."""
    parts: list[str] = []
    left = MOST_CHARACTERS
    for line in body.splitlines():
        if left <= 0:
            break
        if line.startswith(b"data:") and (text := _text(line[5:], fields)):
            parts.append(text[:left])
            left -= len(text)
    return "".join(parts)


def _text(data: bytes, fields: Sequence[str]) -> str:
    """The text of the first choice of an event; empty if it has none."""
    try:
        choice: Any = orjson.loads(data)["choices"][0]
        piece = choice.get("delta", choice)
        found = [piece.get(name) for name in fields]
    except (orjson.JSONDecodeError, AttributeError, LookupError, TypeError):
        return ""
    return "".join(text for text in found if isinstance(text, str))
