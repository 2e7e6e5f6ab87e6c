"""Datasets: pinned files for workloads (`config/datasets.yaml`), and the records in them."""

from __future__ import annotations

import codecs
import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field, ValidationError

from servelab.assets.pinned_file import CHUNK_BYTES, Content, StoredDataset, holds
from servelab.assets.sources import FILE_SOURCES, FileSource
from servelab.core.credentials import without_credentials
from servelab.core.errors import ConfigError, Outage, ServelabError
from servelab.core.registry import nearest
from servelab.core.yaml_file import describe_validation_error, read_yaml

if TYPE_CHECKING:
    AnySource = FileSource
else:
    AnySource = Annotated[Union[tuple(FILE_SOURCES)], Field(discriminator="kind")]  # noqa: UP007 (made at run time)


class Dataset(Content):
    """One pinned file of records (a JSON array, JSON lines or CSV), or the first bytes of one."""

    title: str = Field(description="Name for reports; it says so if the file is a part.")
    file: str = Field(description="Name to store it under.", pattern=r"^[\w.-]+$")
    part_of: str | None = Field(
        None, description="Dataset whose first bytes this file holds; the truncated last record is not used."
    )
    license: str = Field(description="Licence, as its authors state it.")
    sources: list[AnySource] = Field(min_length=1, description="Where to fetch it from, tried in order.")

    @property
    def content(self) -> Content:
        """Size and sha256 that the file must have."""
        return Content(size_bytes=self.size_bytes, sha256=self.sha256)


def load_datasets(path: Path) -> dict[str, Dataset]:
    """All datasets by name; `ConfigError` with file, key and the nearest valid name."""
    datasets = {}
    for name, entry in read_named_entries(path).items():
        try:
            datasets[name] = Dataset.model_validate(entry)
        except ValidationError as error:
            raise ConfigError(describe_validation_error(error, f"{path}: {name}", Dataset)) from None
    for name, dataset in datasets.items():
        if dataset.part_of is not None and dataset.part_of not in datasets:
            wrong = f"unknown dataset `{dataset.part_of}`{nearest(dataset.part_of, list(datasets))}"
            raise ConfigError(f"{path}: {name}.part_of: {wrong}")
    return datasets


def read_named_entries(path: Path) -> dict[str, dict[str, Any]]:
    """A YAML file that maps names to entries, not yet typed; the names are used as folder names. `ConfigError`."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"{path}: the file must map names to entries")
    for name, entry in content.items():
        if not isinstance(name, str) or re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) is None:
            raise ConfigError(f"{path}: {name}: a name may have lower-case letters, digits, `-` and `.` only")
        if not isinstance(entry, dict):
            raise ConfigError(f"{path}: {name}: the entry must map keys to values (found {entry!s:.60})")
    return content


def folder_name(name: str, sha256: str) -> str:
    """The folder of a dataset below results/datasets: one that is edited under its name is another one."""
    return f"{name}-{sha256[:12]}"


def fetch_dataset(name: str, dataset: Dataset, folder: Path) -> Path:
    """Fetches a dataset's file into a folder, counts its records, writes `dataset.json`, and returns its path.

    Sources are tried in order. `ServelabError` with the reason of each source if none has the pinned content.
    """
    file = folder / dataset.file
    source = "kept" if holds(file, dataset.content) else _fetch_first(name, dataset, file)
    stored = StoredDataset(
        name=name,
        title=dataset.title,
        path=dataset.file,
        part_of=dataset.part_of,
        records=sum(1 for _ in iter_records(file, cut=dataset.part_of is not None)),
        license=dataset.license,
        source=source,
        size_bytes=dataset.size_bytes,
        sha256=dataset.sha256,
    )
    path = folder / "dataset.json"
    stored.write(path)
    return path


def _fetch_first(name: str, dataset: Dataset, file: Path) -> str:
    """Fetches the file from the first source that has it; returns that source's description."""
    failures = []
    for source in dataset.sources:
        try:
            source.fetch(dataset.content, file)
            return source.describe()
        except Outage:
            raise
        except ServelabError as error:
            failures.append(str(error))
            print(f"{name}: {without_credentials(str(error))}", file=sys.stderr, flush=True)
    raise ServelabError(f"dataset {name}: no source has it: {'; '.join(failures)}")


def load_stored_dataset(path: Path) -> tuple[StoredDataset, Path]:
    """The content of a `dataset.json`, and the path of its file."""
    stored = StoredDataset.read(path)
    return stored, path.parent / stored.path


def iter_records(path: Path, *, cut: bool) -> Iterator[dict[str, Any]]:
    """Yields the records of a file one at a time, so that a file of any size fits in memory.

    A `.csv` file has one record per row below its header, with text values. Any other file is a JSON array of objects
    or JSON lines. With `cut` the file may end anywhere, and its truncated last record is skipped; without it, such an
    end is a `ServelabError`.
    """
    if path.suffix == ".csv":
        yield from _iter_rows(path, cut=cut)
        return
    decode = json.JSONDecoder().raw_decode
    position, count = 0, 0
    with path.open("rb") as file:
        utf8 = codecs.getincrementaldecoder("utf-8")()
        text = utf8.decode(file.read(CHUNK_BYTES)).lstrip()
        if not text.startswith(("[", "{")):
            raise ServelabError(f"{path}: neither a JSON array of records nor JSON lines")
        in_array = text.startswith("[")
        position, block_bytes = int(in_array), CHUNK_BYTES
        while True:
            position = _skip(text, position)
            if in_array and text.startswith("]", position):
                return
            try:
                record, position = decode(text, position)
            except json.JSONDecodeError as error:
                block = file.read(block_bytes)
                if not block and (cut or (not in_array and position == len(text))):
                    return
                if not block:
                    raise ServelabError(f"{path}: broken after {count:,} complete records: {error.msg}") from None
                # Doubling limits how often a record longer than a block is scanned again.
                text, position, block_bytes = text[position:] + utf8.decode(block), 0, block_bytes * 2
                continue
            if not isinstance(record, dict):
                raise ServelabError(f"{path}: record {count:,} is not an object")
            block_bytes = CHUNK_BYTES
            count += 1
            yield record


def _iter_rows(path: Path, *, cut: bool) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        previous = None
        for count, row in enumerate(csv.DictReader(file)):
            if previous is not None:
                yield previous
            if None in row or (None in row.values() and not cut):
                raise ServelabError(f"{path}: row {count:,} has another number of fields than the header")
            previous = row
        if previous is not None and not cut:  # the last row of a cut file may end within a value
            yield previous


def _skip(text: str, position: int) -> int:
    """The position after white space and the comma that separates records."""
    while position < len(text) and text[position] in " \t\r\n,":
        position += 1
    return position
