"""Datasets: pinned files for workloads (`config/datasets.yaml`), and the records in them."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, TypeVar, Union

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

T = TypeVar("T")
_ARRAY = re.compile(r'(\{\s*"(data|examples|records|rows|train)"\s*:\s*)?\[')
"""Begins an array of records, also as the first value of an object."""
_MOST_BAD, _SHOWN = 0.05, 3
"""Share of a file's records that may be left out, and how many of them are named."""
_BYTES = range(0xDC80, 0xDD00)
"""Characters that stand for bytes that are no UTF-8."""


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
        records=sum(isinstance(each, dict) for each in iter_records(file, cut=dataset.part_of is not None)),
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


class BadRecord(NamedTuple):
    """A line or an element of a file that is no record."""

    fault: str


def read_records(path: Path, read: Callable[[dict[str, Any]], T], *, cut: bool) -> list[T]:
    """Each record of a file as `read` returns it. Records that it refuses with a `ValueError` are left out.

    The first of them are printed. `ServelabError` if more than 5 % are left out.
    """
    found: list[T] = []
    bad: list[str] = []
    for number, record in enumerate(iter_records(path, cut=cut), start=1):
        try:
            if isinstance(record, BadRecord):
                raise ValueError(record.fault)
            found.append(read(record))
        except ValueError as error:
            bad.append(f"record {number:,}: {error}")
    if bad:
        shown = "; ".join(bad[:_SHOWN])
        what = f"{path}: {len(bad):,} of {len(bad) + len(found):,} records cannot be used: {shown}"
        if len(bad) > _MOST_BAD * (len(bad) + len(found)):
            raise ServelabError(what)
        print(f"{what}; they are left out", file=sys.stderr, flush=True)
    return found


def check_text(text: str) -> str:
    """The text; `ValueError` if it has characters that cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        wrong = f"has the byte {code - 0xDC00:#04x}, which is no UTF-8" if code in _BYTES else "has half a character"
        raise ValueError(f"{wrong} (\\u{code:04x})") from None
    return text


def iter_records(path: Path, *, cut: bool) -> Iterator[dict[str, Any] | BadRecord]:
    """Yields the records of a file one at a time, so that a file of any size fits in memory.

    A `.csv` file has one record per row below its header, with text values. Any other file is a JSON array of objects,
    an object with such an array, or JSON lines. With `cut` the file may end anywhere, and its truncated last record is
    skipped; without it, an array or a table that ends so is a `ServelabError`.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        if path.suffix == ".csv":
            yield from _iter_rows(path, file, cut=cut)
            return
        text = file.read(CHUNK_BYTES).lstrip()
        if array := _ARRAY.match(text):
            yield from _iter_array(path, file, text[array.end() :], cut=cut)
        elif text.startswith("{"):
            file.seek(0)
            yield from _iter_lines(file, cut=cut)
        else:
            raise ServelabError(f"{path}: neither a JSON array of records nor JSON lines, in UTF-8")


def _iter_lines(file: TextIO, *, cut: bool) -> Iterator[dict[str, Any] | BadRecord]:
    for line in file:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not cut or line.endswith("\n"):
                yield BadRecord(f"is not JSON: {error}")
            continue
        yield record if isinstance(record, dict) else BadRecord("is not an object")


def _iter_array(path: Path, file: TextIO, text: str, *, cut: bool) -> Iterator[dict[str, Any] | BadRecord]:
    decode = json.JSONDecoder().raw_decode
    position, count, block_bytes = 0, 0, CHUNK_BYTES
    while True:
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        if text.startswith("]", position):
            return
        try:
            record, position = decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            block = file.read(block_bytes)
            if not block and cut:
                return
            if not block:
                raise ServelabError(f"{path}: broken after {count:,} complete records: {error}") from None
            # Doubling limits how often a record longer than a block is scanned again.
            text, position, block_bytes = text[position:] + block, 0, block_bytes * 2
            continue
        block_bytes = CHUNK_BYTES
        count += 1
        yield record if isinstance(record, dict) else BadRecord("is not an object")


def _iter_rows(path: Path, file: TextIO, *, cut: bool) -> Iterator[dict[str, Any]]:
    previous = None
    for count, row in enumerate(csv.DictReader(file)):
        if previous is not None:
            yield previous
        if None in row or (None in row.values() and not cut):
            raise ServelabError(f"{path}: row {count:,} has another number of fields than the header")
        previous = row
    if previous is not None and not cut:  # the last row of a cut file may end within a value
        yield previous
