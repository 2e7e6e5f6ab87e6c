"""Conversations of a round: a later turn is sent with all that was said before, the server's own answers included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]


class Conversations:
    """Which request follows which. A load process asks it for the next turn when one is answered."""

    def __init__(
        self,
        turns: Sequence[int | None],
        think_s: Sequence[float | None],
        opening: Callable[[int], list[Message]],
        encode: Callable[[int, list[Message] | None], bytes],
    ) -> None:
        """Turn and pause of each position among the requests, as `schemas.TURNS` has them.

        `opening` gives the messages that a position has of its own; `encode` the bytes that send them for it.
        """
        self._turns, self._think_s, self._opening, self._encode = turns, think_s, opening, encode
        self.first = [position for position in range(len(turns)) if not self.is_later(position)]
        """Positions that arrive by themselves."""
        self._said: dict[int, list[Message]] = {}
        """Messages of the last turn that was sent, by its position; a first turn has those of its opening."""

    def is_later(self, position: int) -> bool:
        """Whether the request follows the one before it."""
        return bool(self._turns[position])

    def after(self, position: int, answer: str) -> tuple[int, float, bytes] | None:
        """The turn that follows an answer: its position, the pause in seconds, its bytes; None after the last turn."""
        said = self._said.pop(position, None)
        if position + 1 == len(self._turns) or not self.is_later(position + 1):
            return None
        said = self._opening(position) if said is None else said
        messages = [*said, {"role": "assistant", "content": answer}, *self._opening(position + 1)]
        self._said[position + 1] = messages
        return position + 1, self._think_s[position + 1] or 0.0, self._encode(position + 1, messages)
