"""Which request a load process sends next."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

_INDEX = struct.Struct("=I")


class RequestQueue(Protocol):
    """Positions of requests, in order of arrival."""

    ended: bool
    """Whether no more will follow."""

    def take(self) -> int | None:
        """The next position; None if there is none, or none yet."""
        ...

    def close(self) -> None:
        """Ends the queue: nothing more can be taken."""
        ...


class OwnQueue:
    """Requests that belong to one process from the start."""

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
    """Requests that go to any process with a free slot: a pipe, whose reads the kernel keeps apart.

    Created before the processes fork. The parent fills it and closes it when everything is in. A process that dies
    loses only the request that it has taken.
    """

    def __init__(self, indexes: Iterable[int]) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._left = memoryview(b"".join(map(_INDEX.pack, indexes)))
        self.ended = False

    def fill(self) -> None:
        """Parent: writes as much as the pipe accepts."""
        if self.ended:
            return
        try:
            while self._left:
                # 512 bytes hold whole numbers only, and the kernel writes up to PIPE_BUF bytes atomically.
                self._left = self._left[os.write(self._writing, self._left[:512]) :]
        except BlockingIOError:
            return
        os.close(self._writing)
        self.ended = True

    def open_for_taking(self) -> None:
        """Child: closes its copy of the writing end, so that only the parent decides when the pipe ends."""
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
