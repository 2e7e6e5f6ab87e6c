"""The bytes of all answers in order of arrival; the kernel writes them there, and nothing is copied.

If thousands of answers each grew in their own buffer, memory would fragment and its use would double.
"""

from __future__ import annotations

from collections.abc import Sequence

_BITS = 22
BLOCK_BYTES = 1 << _BITS
"""A place on the tape is `block * BLOCK_BYTES + offset`; a piece never crosses blocks."""


class Tape:
    """Blocks of memory that are filled one after the other."""

    def __init__(self) -> None:
        self._views: list[memoryview] = []

    def add_block(self) -> tuple[int, bytearray]:
        """A new block and its place."""
        block = bytearray(BLOCK_BYTES)
        self._views.append(memoryview(block))
        return (len(self._views) - 1) * BLOCK_BYTES, block

    def join(self, places: Sequence[int], sizes: Sequence[int]) -> bytes:
        """The pieces, joined."""
        views, parts = self._views, []
        for place, size in zip(places, sizes, strict=True):
            offset = place & (BLOCK_BYTES - 1)
            parts.append(views[place >> _BITS][offset : offset + size])
        return b"".join(parts)
