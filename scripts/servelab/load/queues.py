"""Which request a load process sends next."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

_INDEX = struct.Struct("=I")


class RequestQueue(Protocol):
    """Gives positions of requests, in order of arrival."""

    ended: bool
    """Nothing more will come."""

    def take(self) -> int | None:
        """The next one; None if there is none, or none just now."""
        ...

    def close(self) -> None:
        """Gives no more."""
        ...


class OwnQueue:
    """Requests that are one process's own from the start."""

    def __init__(self, indexes: Iterable[int]) -> None:
        self._indexes: Iterator[int] = iter(indexes)
        self.ended = False

    def take(self) -> int | None:
        """See `RequestQueue.take`."""
        index = None if self.ended else next(self._indexes, None)
        self.ended = index is None
        return index

    def close(self) -> None:
        """See `RequestQueue.close`."""
        self.ended = True


class SharedQueue:
    """Requests that go to whichever process has a slot free: a pipe, whose reads the kernel keeps apart.

    Made before the processes fork. The parent fills it, and closes it once all is in; a process that dies takes
    nothing with it but the one request it held.
    """

    def __init__(self, count: int) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._left = memoryview(b"".join(map(_INDEX.pack, range(count))))
        self.ended = False

    def fill(self) -> None:
        """Parent: puts in what the pipe takes."""
        if self.ended:
            return
        try:
            while self._left:
                # Whole numbers only: what fits is written as a whole up to the pipe's atomic size.
                self._left = self._left[os.write(self._writing, self._left[:512]) :]
        except BlockingIOError:
            return
        os.close(self._writing)
        self.ended = True

    def open_for_taking(self) -> None:
        """Child: lets the parent alone decide when the pipe ends."""
        os.close(self._writing)

    def take(self) -> int | None:
        """See `RequestQueue.take`."""
        if self.ended:
            return None
        try:
            data = os.read(self._reading, _INDEX.size)
        except BlockingIOError:
            return None
        self.ended = not data
        return int(_INDEX.unpack(data)[0]) if data else None

    def close(self) -> None:
        """See `RequestQueue.close`."""
        self.ended = True
