"""The bytes of all answers in the order in which they came, as the kernel wrote them: nothing is copied in between.

Thousands of answers that each grow in a buffer of their own leave as many holes in the memory as they use.
"""

from __future__ import annotations

from collections.abc import Sequence

_BITS = 22
BLOCK_BYTES = 1 << _BITS
"""A place on the tape is `block * BLOCK_BYTES + offset`; a piece lies within one block."""


class Tape:
    """Blocks that are filled one after the other."""

    def __init__(self) -> None:
        self.blocks: list[bytearray] = []

    def add_block(self) -> tuple[int, bytearray]:
        """A new block and its place."""
        self.blocks.append(bytearray(BLOCK_BYTES))
        return (len(self.blocks) - 1) * BLOCK_BYTES, self.blocks[-1]

    def join(self, places: Sequence[int], sizes: Sequence[int]) -> bytes:
        """Pieces put together."""
        views = [memoryview(block) for block in self.blocks]
        parts = []
        for place, size in zip(places, sizes, strict=True):
            offset = place & (BLOCK_BYTES - 1)
            parts.append(views[place >> _BITS][offset : offset + size])
        return b"".join(parts)
