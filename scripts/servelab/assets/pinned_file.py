"""Pinned files: a file appears when its size and sha256 are checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pydantic import Field

from servelab.assets.model_work import ModelWork
from servelab.core.errors import ServelabError
from servelab.core.files import JsonFile, replacing
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


def write_pinned(destination: Path, content: Content, blocks: Iterable[bytes]) -> None:
    """Writes blocks to a file beside `destination`, checks size and sha256, and renames it.

    `ContentError` if they are another content; the file that was there then stays. A full or failing disk is an
    `Outage`.
    """
    size, digest = 0, hashlib.sha256()
    with replacing(destination) as temporary:
        with temporary.open("wb") as file:
            for block in blocks:
                size += len(block)
                if size > content.size_bytes:
                    raise ContentError(f"{destination}: got more than the pinned {content.size_bytes:,} bytes")
                digest.update(block)
                file.write(block)
        if size < content.size_bytes:
            raise ContentError(f"{destination}: truncated: {size:,} of {content.size_bytes:,} bytes received")
        if (found := digest.hexdigest()) != content.sha256:
            wrong = f"sha256 is {found}, not the pinned {content.sha256}"
            raise ContentError(f"{destination}: corrupt or another version: {wrong}")


def blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    """The rest of an open file."""
    return iter(lambda: file.read(CHUNK_BYTES), b"")


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
