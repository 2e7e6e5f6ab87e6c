"""Datasets: pinned files that workloads are made from (`config/datasets.yaml`), and their records."""

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

from servelab.config_file import describe_validation_error, read_yaml
from servelab.content import CHUNK_BYTES, Content, holds
from servelab.credentials import without_credentials
from servelab.errors import ConfigError, Outage, ServelabError
from servelab.files import write_text
from servelab.registry import nearest
from servelab.sources import FILE_SOURCES, FileSource

if TYPE_CHECKING:
    AnySource = FileSource
else:
    AnySource = Annotated[Union[tuple(FILE_SOURCES)], Field(discriminator="kind")]  # noqa: UP007 (made at run time)


class Dataset(Content):
    """One pinned file of records (a JSON array, JSON lines or CSV), or the first bytes of one."""

    title: str = Field(description="Name for reports; says so where the file is a part.")
    file: str = Field(description="Name to store it under.", pattern=r"^[\w.-]+$")
    part_of: str | None = Field(
        None, description="Dataset whose first bytes this file is; its complete records are used, the cut one is not."
    )
    license: str = Field(description="Licence, as its authors state it.")
    sources: list[AnySource] = Field(min_length=1, description="Where to fetch it, tried in order.")

    @property
    def content(self) -> Content:
        """What the file must be."""
        return Content(size_bytes=self.size_bytes, sha256=self.sha256)


class StoredDataset(Content):
    """What `dataset.json` says of a file beside it."""

    name: str
    title: str
    path: str = Field(description="The file, relative to `dataset.json`.")
    part_of: str | None
    records: int = Field(description="Complete records in the file.")
    license: str
    source: str = Field(description="Where this copy came from, or `kept` if it was there already.")


def load_datasets(path: Path) -> dict[str, Dataset]:
    """All datasets by name; a mistake is a `ConfigError` with file, key and the nearest valid name."""
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
    """A YAML file that maps names (which become folders) to entries, not yet typed."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"{path}: must map names to entries")
    for name, entry in content.items():
        if not isinstance(name, str) or re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) is None:
            raise ConfigError(f"{path}: {name}: a name has lower-case letters, digits, `-` and `.` only")
        if not isinstance(entry, dict):
            raise ConfigError(f"{path}: {name}: must map keys to values (found {entry!s:.60})")
    return content


def fetch_dataset(name: str, dataset: Dataset, folder: Path) -> Path:
    """Brings a dataset's file into a folder, counts its records, and writes `dataset.json`; returns that.

    Sources are tried in order. Raises `ServelabError` with each source's reason if none gives the pinned content.
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
    write_text(path, stored.model_dump_json(indent=2) + "\n")
    return path


def _fetch_first(name: str, dataset: Dataset, file: Path) -> str:
    """Description of the first source that gives the content."""
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
    raise ServelabError(f"dataset {name}: no source gave it: {'; '.join(failures)}")


def load_stored_dataset(path: Path) -> tuple[StoredDataset, Path]:
    """What a `dataset.json` says, and the file it is about."""
    stored = StoredDataset.model_validate_json(path.read_text(encoding="utf-8"))
    return stored, path.parent / stored.path


def iter_records(path: Path, *, cut: bool) -> Iterator[dict[str, Any]]:
    """The records of a file, one at a time, so that a file of any size fits in memory.

    A `.csv` file has a record a row below its header, all values text. Any other is a JSON array of objects, or one
    object after the other (JSON lines). With `cut`, the file may end anywhere and the record that was cut is left out;
    otherwise a file that does not end as it should is a `ServelabError`.
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
                # Doubling keeps a record longer than a block from being scanned too often.
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
        if previous is not None and not cut:  # the last row of a cut file may be cut within a value
            yield previous


def _skip(text: str, position: int) -> int:
    """The position after white space and the comma between records."""
    while position < len(text) and text[position] in " \t\r\n,":
        position += 1
    return position
