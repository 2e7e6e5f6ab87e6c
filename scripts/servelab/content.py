"""Pinned content: a file gets its final name only when its size and sha256 are the pinned ones.

What is being written is called `<name>.part`; a good file under the final name is never touched before its
replacement is complete and checked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from pydantic import Field

from servelab.errors import Outage, ServelabError
from servelab.identity import file_sha256
from servelab.spec import Strict

CHUNK_BYTES = 1 << 20


class Content(Strict):
    """What a file must be, to the byte."""

    size_bytes: int = Field(gt=0, description="Size in bytes.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="sha256, in hex.")


class ContentError(ServelabError):
    """A file is not the pinned content."""


def holds(path: Path, content: Content) -> bool:
    """Whether a file is there and is the pinned content."""
    return path.is_file() and path.stat().st_size == content.size_bytes and file_sha256(path) == content.sha256


class PartFile:
    """`<destination>.part`, hashed while it is written; `finish` checks it and gives it its final name.

    With `resume`, bytes left by an interrupted download are kept and `size_bytes` says how many there are.
    Leaving the block without `finish` keeps the part for a later try. A full or failing disk is an `Outage`.
    """

    def __init__(self, destination: Path, content: Content, *, resume: bool = False) -> None:
        self.destination, self.content = destination, content
        self.path = destination.with_name(destination.name + ".part")
        self.size_bytes = 0
        self._resume = resume
        self._hash = hashlib.sha256()
        self._file: BinaryIO

    def __enter__(self) -> PartFile:
        try:
            self.destination.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab+")
            kept_bytes = self._file.seek(0, os.SEEK_END)
            if self._resume and kept_bytes <= self.content.size_bytes:
                self._file.seek(0)
                while block := self._file.read(min(CHUNK_BYTES, kept_bytes - self._file.tell())):
                    self._hash.update(block)
                self.size_bytes = kept_bytes
            else:
                self.restart()
            free_bytes = shutil.disk_usage(self.destination.parent).free
        except OSError as error:
            raise self._outage(error) from None
        missing_bytes = self.content.size_bytes - self.size_bytes
        if free_bytes < missing_bytes:
            self._file.close()
            raise Outage(
                f"{self.destination}: the disk has {free_bytes / 1e6:.0f} MB free, "
                f"{missing_bytes / 1e6:.0f} MB more are needed; make room and run again"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError as failure:
            raise self._outage(failure) from None

    def restart(self) -> None:
        """Forgets what was written so far."""
        try:
            if self._file.tell() > 0:
                self._file.truncate(0)
        except OSError as error:
            raise self._outage(error) from None
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, block: bytes) -> None:
        """Appends bytes; more than the pinned size is a `ContentError`, since it cannot be the file."""
        if self.size_bytes + len(block) > self.content.size_bytes:
            self.discard()
            raise ContentError(
                f"{self.destination}: more than the pinned {self.content.size_bytes:,} bytes came: this is another file"
            )
        try:
            self._file.write(block)
            self._file.flush()
        except OSError as error:
            raise self._outage(error) from None
        self._hash.update(block)
        self.size_bytes += len(block)

    def write_all(self, blocks: Iterable[bytes]) -> None:
        """Appends all blocks and finishes."""
        for block in blocks:
            self.write(block)
        self.finish()

    def finish(self) -> None:
        """Checks size and sha256, then puts the file in place; a wrong one is removed and a `ContentError`."""
        if self.size_bytes < self.content.size_bytes:
            raise ContentError(
                f"{self.destination}: truncated: {self.size_bytes:,} of {self.content.size_bytes:,} bytes came"
            )
        if self._hash.hexdigest() != self.content.sha256:
            found = self._hash.hexdigest()
            self.discard()
            raise ContentError(
                f"{self.destination}: corrupt or another version: "
                f"sha256 is {found}, not the pinned {self.content.sha256}"
            )
        try:
            os.fsync(self._file.fileno())
            self.path.replace(self.destination)
        except OSError as error:
            raise self._outage(error) from None

    def discard(self) -> None:
        """Removes the part: its bytes are of no use to a later try."""
        self.path.unlink(missing_ok=True)

    def _outage(self, error: OSError) -> Outage:
        return Outage(f"{self.path}: cannot be written: {error.strerror or error}; mend that and run again")
