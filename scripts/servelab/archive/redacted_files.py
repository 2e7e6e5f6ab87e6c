"""Changes the texts of a file: of JSON and Parquet each value, of others the whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError

MOST_BYTES = 1 << 30
"""A larger text or JSON file is not archived, because it is searched for secrets as a whole."""
Change = Callable[[str, str, str], str]
"""From the place of a text, its key (in JSON) and the text to the text that takes its place."""


def changed_file(source: Path, scratch: Path, change: Change) -> Path:
    """`source` if nothing changes, else `scratch` with the changed content."""
    if all(change(*each) == each[2] for each in texts_of(source)):
        return source
    if source.suffix == ".parquet":
        _change_parquet(source, scratch, change)
    elif source.suffix == ".json":
        made = changed_json(_read_json(source), change)
        scratch.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        scratch.write_bytes(change("", "", _read(source)).encode(errors="surrogateescape"))
    return scratch


def texts_of(source: Path) -> Iterator[tuple[str, str, str]]:
    """Texts of a file: the place, the key (in JSON), and the text; of a text file the whole, without a place."""
    if source.suffix == ".parquet":
        with pq.ParquetFile(source) as file:
            yield from (("its metadata", "", each.decode()) for each in (file.schema_arrow.metadata or {}).values())
            for name in _columns_with_text(file.schema_arrow):
                for batch in file.iter_batches(columns=[name]):
                    yield from _texts_in(batch.column(0).to_pylist(), f"column {name}")
    elif source.suffix == ".json":
        yield from _texts_in(_read_json(source), "")
    else:
        yield "", "", _read(source)


def changed_json(value: Any, change: Change, place: str = "", key: str = "") -> Any:
    """Plain data with each text and each key changed. A text behind an option has the option as its key."""
    if isinstance(value, dict):
        inside = key if key.lower() == "cookies" else ""  # a dict of names and values
        return {
            change(place or "its keys", "", name): changed_json(
                item, change, f"{place}.{name}".lstrip("."), inside or name
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        keys = [key, *(item if isinstance(item, str) and item.startswith("-") else key for item in value)]
        pairs = enumerate(zip(keys, value, strict=False))
        return [changed_json(item, change, f"{place}.{number}".lstrip("."), name) for number, (name, item) in pairs]
    return change(place, key, value) if isinstance(value, str) else value


def _texts_in(value: Any, place: str) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []

    def keep(*each: str) -> str:
        found.append((place, "", each[2]) if place else (each[0], each[1], each[2]))
        return each[2]

    changed_json(value, keep)
    return found


def _change_parquet(source: Path, scratch: Path, change: Change) -> None:
    """Keeps the codec and the size of row groups."""
    once = cache(lambda text: change("", "", text))
    with pq.ParquetFile(source) as file:
        table, group = file.read(), file.metadata.row_group(0) if file.num_row_groups else None
        codec = group.column(0).compression if group else "SNAPPY"
        size = group.num_rows or None if group else None  # a failed run may have a table without rows
    for name in _columns_with_text(table.schema):
        field = table.schema.field(name)
        made = changed_json(table[name].to_pylist(), lambda place, key, text: once(text))
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(made, field.type))
    metadata = {key: once(value.decode()).encode() for key, value in (table.schema.metadata or {}).items()}
    codec = "NONE" if codec == "UNCOMPRESSED" else codec
    pq.write_table(table.replace_schema_metadata(metadata or None), scratch, compression=codec, row_group_size=size)


def _columns_with_text(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if "string" in str(field.type)]


def _read(source: Path) -> str:
    if (size := source.stat().st_size) > MOST_BYTES:
        most = f"has {size >> 20} MiB, more than the {MOST_BYTES >> 20} that are searched for secrets"
        raise ServelabError(f"{source}: {most}; archive without the run that it is of")
    return source.read_bytes().decode(errors="surrogateescape")


def _read_json(source: Path) -> Any:
    try:
        return json.loads(source.read_bytes())
    except ValueError as error:
        raise ServelabError(f"{source}: not valid JSON: {error}") from None
