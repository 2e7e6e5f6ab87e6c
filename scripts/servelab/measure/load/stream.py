"""Answers as servers stream them: server-sent events of the OpenAI API, read after the round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from servelab.core.credentials import without_credentials

MOST_CHARACTERS = 1 << 16
"""Characters of an answer that are kept."""
_DONE = b"[DONE]"
_REASONED, _SAID = ("reasoning_content", "reasoning"), ("content", "text")
"""Fields of a piece that hold text."""
_EXCERPT = 300
_MOST_TOKENS = 1 << 31
_MOST_REASON = 64
"""Characters of a finish reason."""


@dataclass
class StreamedAnswer:
    """Content of a streamed answer."""

    token_ends: list[int] = field(default_factory=list)
    """Bytes of the body up to the end of each event that carries a token."""
    text: str = ""
    """At most `MOST_CHARACTERS` of the text; the reasoning of a piece comes before what it answers."""
    said: str = ""
    """The same without reasoning: what the next turn of a conversation repeats."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    """Whether the closing `[DONE]` arrived."""
    error: str | None = None

    def token_times(
        self, stamps: Sequence[float] | npt.NDArray[Any], ends: Sequence[int] | npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Arrival of each event that carries a token; the body's bytes up to `ends[i]` had arrived at `stamps[i]`."""
        pieces = np.searchsorted(np.asarray(ends, dtype=np.int64), np.asarray(self.token_ends, dtype=np.int64))
        return np.asarray(stamps, dtype=np.float64)[pieces]


def read_answer(body: bytes) -> StreamedAnswer:
    """The answer in a body of server-sent events. Reading stops at an event that cannot be read; `error` says so."""
    answer = StreamedAnswer()
    text: list[str] = []
    said: list[str] = []
    separator = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    position = 0
    for block in body.split(separator)[:-1]:  # no complete event follows the last separator
        position += len(block) + len(separator)
        if (data := _data(block)) is None:
            continue
        if data == _DONE:
            answer.done = True
            break
        try:
            event = orjson.loads(data)
            if event.get("error"):
                answer.error = f"server_error: {excerpt(data)}"
                break
            if choices := event.get("choices"):
                if _carries_token(choices, answer):
                    answer.token_ends.append(position)
                piece = choices[0].get("delta", choices[0])
                text += _texts(piece, _REASONED + _SAID)
                said += _texts(piece, _SAID)
            if usage := event.get("usage"):
                _read_usage(usage, answer)
        except (orjson.JSONDecodeError, AttributeError, LookupError, TypeError):
            answer.error = f"broken_event: {excerpt(data)}"
            break
    answer.text, answer.said = ("".join(parts)[:MOST_CHARACTERS] for parts in (text, said))
    return answer


def excerpt(body: bytes) -> str:
    """The start of a body on one line, for an error: the server's message if it has one, without credentials."""
    try:
        error = orjson.loads(body)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = body[: 4 * _EXCERPT].decode(errors="replace")
    shown = " ".join(without_credentials(str(text)[: 4 * _EXCERPT]).split())[:_EXCERPT]
    return "".join(character if character.isprintable() else "�" for character in shown)


def _data(block: bytes) -> bytes | None:
    """An event's data; None for a comment or an event without data."""
    if block.startswith(b"data:") and b"\n" not in block and b"\r" not in block:
        return block[5:].removeprefix(b" ")
    data = [line[5:].removeprefix(b" ") for line in block.splitlines() if line.startswith(b"data:")]
    return b"\n".join(data) if data else None


def _texts(piece: dict[str, Any], fields: Sequence[str]) -> list[str]:
    return [text for name in fields if isinstance(text := piece.get(name), str)]


def _carries_token(choices: list[dict[str, Any]], answer: StreamedAnswer) -> bool:
    """Whether an event has text, or empty text that is no start or end; notes the finish reason."""
    carries = False
    for choice in choices:
        piece, reason = choice.get("delta", choice), choice.get("finish_reason")
        if reason is not None and (not isinstance(reason, str) or len(reason) > _MOST_REASON):
            raise TypeError
        answer.finish_reason = reason or answer.finish_reason
        texts = [piece.get(name) for name in _REASONED + _SAID]
        carries |= any(texts) or ("" in texts and not piece.get("role") and not reason)
    return carries


def _read_usage(usage: dict[str, Any], answer: StreamedAnswer) -> None:
    answer.input_tokens = _count(usage["prompt_tokens"])
    answer.output_tokens = _count(usage["completion_tokens"])
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    answer.cached_tokens = None if cached is None else _count(cached)


def _count(value: Any) -> int:
    """A number of tokens; `TypeError` for anything else, which no table could hold."""
    if type(value) is not int or not 0 <= value < _MOST_TOKENS:
        raise TypeError
    return value
