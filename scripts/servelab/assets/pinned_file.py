"""Pinned files: a file is `<name>.part` until its size and sha256 are checked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pydantic import Field

from servelab.assets.model_work import ModelWork
from servelab.core.errors import Outage, ServelabError
from servelab.core.files import JsonFile, follows_no_link
from servelab.core.identity import file_sha256
from servelab.core.run_spec import ModelFormat, ModelSource, Strict, WorkloadSpec

CHUNK_BYTES = 1 << 20


class Content(Strict):
    """Size and sha256 that a file must have."""

    size_bytes: int = Field(gt=0, description="Size in bytes.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="sha256, in hex.")


class ContentError(ServelabError):
    """A file does not have the pinned content."""


def holds(path: Path, content: Content) -> bool:
    """Whether a file exists and has the pinned content."""
    return path.is_file() and path.stat().st_size == content.size_bytes and file_sha256(path) == content.sha256


class PartFile:
    """`<destination>.part`, which `finish` checks and renames to its final name.

    With `resume` it keeps the bytes of an interrupted download, and `size_bytes` is their number. Leaving the block
    without `finish` keeps the part for a later attempt. A full or failing disk is an `Outage`.
    """

    def __init__(self, destination: Path, content: Content, *, resume: bool = False) -> None:
        self.destination, self.content = destination, content
        self.path = destination.with_name(destination.name + ".part")
        self.size_bytes = 0
        self._resume = resume
        self._file: BinaryIO

    def __enter__(self) -> PartFile:
        with self._outages():
            self.destination.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab+", opener=follows_no_link)
            kept_bytes = self._file.seek(0, os.SEEK_END)
            if self._resume and kept_bytes <= self.content.size_bytes:
                self.size_bytes = kept_bytes
            else:
                self.restart()
            free_bytes = shutil.disk_usage(self.destination.parent).free
        missing_bytes = self.content.size_bytes - self.size_bytes
        if free_bytes < missing_bytes:
            self._file.close()
            raise Outage(
                f"{self.destination}: the disk has {free_bytes / 1e6:.0f} MB free, "
                f"{missing_bytes / 1e6:.0f} MB are needed; free some space and run again"
            )
        return self

    def __exit__(self, *_: object) -> None:
        with self._outages():
            self._file.close()

    def restart(self) -> None:
        """Discards all bytes written so far."""
        with self._outages():
            if self._file.tell() > 0:
                self._file.truncate(0)
        self.size_bytes = 0

    def write(self, block: bytes) -> None:
        """Appends bytes; `ContentError` if the part gets larger than the pinned size."""
        if self.size_bytes + len(block) > self.content.size_bytes:
            self.discard()
            raise ContentError(
                f"{self.destination}: got more than the pinned {self.content.size_bytes:,} bytes: this is another file"
            )
        with self._outages():
            self._file.write(block)
            self._file.flush()
        self.size_bytes += len(block)

    def finish(self) -> None:
        """Checks size and sha256, then renames the part; removes a part with wrong content (`ContentError`)."""
        if self.size_bytes < self.content.size_bytes:
            raise ContentError(
                f"{self.destination}: truncated: {self.size_bytes:,} of {self.content.size_bytes:,} bytes received"
            )
        if (found := file_sha256(self.path)) != self.content.sha256:
            self.discard()
            raise ContentError(
                f"{self.destination}: corrupt or another version: "
                f"sha256 is {found}, not the pinned {self.content.sha256}"
            )
        with self._outages():
            os.fsync(self._file.fileno())
            self.path.replace(self.destination)

    def discard(self) -> None:
        """Removes the part: a later attempt cannot use its bytes."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def _outages(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Outage(f"cannot write {self.path}: {error.strerror or error}; fix that and run again") from None


class StoredModel(JsonFile):
    """`model.json`: a model's files. Paths are relative to it, or absolute if the model is elsewhere."""

    path: str = Field(description="File or folder with the weights, to give the engine.")
    format: ModelFormat = Field(description="Format of the weights.")
    tokenizer: str = Field(description="The tokenizer.json that counts this model's tokens.")
    source: ModelSource = Field(description="Where the weights came from.")
    conversion: str | None = Field(None, description="Converter and its version; null if they are served as fetched.")
    work: ModelWork | None = Field(
        None, description="What a token needs at least; null for a kind of model that is not known here."
    )


class StoredDataset(JsonFile):
    """`dataset.json`: the file of records beside it."""

    name: str = Field(description="Name in `config/datasets.yaml`.")
    title: str = Field(description="Name for reports.")
    path: str = Field(description="The file, relative to this one.")
    part_of: str | None = Field(description="Dataset whose first bytes the file is; null for a whole one.")
    records: int = Field(description="Complete records in the file.")
    license: str = Field(description="Licence, as its authors state it.")
    source: str = Field(description="Where this copy came from, or `kept` if it was there already.")
    size_bytes: int = Field(description="Size of the file.")
    sha256: str = Field(description="sha256 of the file.")


class StoredWorkload(JsonFile):
    """`workload.json`: the requests beside it."""

    workload_id: str = Field(description="Workload: the name of its folder, a hash of its specification.")
    spec: WorkloadSpec = Field(description="Kind, parameters, tokenizer, and the generator's version.")
    requests: int = Field(description="Requests of the measured phase.")
    input_tokens: int = Field(description="Their input tokens, counted by the model's tokenizer.")
    output_tokens: int = Field(description="Output tokens that they ask for.")
    requests_sha256: str = Field(description="sha256 of `requests.parquet`.")
