"""Changes the texts of a file: of JSON and Parquet each value, of others the whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError

MOST_BYTES = 1 << 30
"""A larger text or JSON file is not archived, because it is searched for secrets as a whole."""
Change = Callable[[str, str, str], str]
"""From the place of a text (of a text file none), its key (in JSON) and the text to the text that takes its place."""


def changed_file(source: Path, scratch: Path, change: Change) -> Path:
    """`source` if nothing changes, else `scratch` with the changed content."""
    if source.suffix == ".parquet":
        return _changed_parquet(source, scratch, change)
    if (size := source.stat().st_size) > MOST_BYTES:
        most = f"has {size >> 20} MiB, more than the {MOST_BYTES >> 20} that are searched for secrets"
        raise ServelabError(f"{source}: {most}; archive without the run that it is of")
    if source.suffix != ".json":
        text = source.read_bytes().decode(errors="surrogateescape")
        if (made := change("", "", text)) != text:
            scratch.write_bytes(made.encode(errors="surrogateescape"))
        return source if made == text else scratch
    try:
        value = json.loads(source.read_bytes())
    except ValueError as error:
        raise ServelabError(f"{source}: not valid JSON: {error}") from None
    if (changed := changed_json(value, change)) != value:
        scratch.write_text(json.dumps(changed, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return source if changed == value else scratch


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


def _changed_parquet(source: Path, scratch: Path, change: Change) -> Path:
    """Keeps the codec and the size of row groups."""
    with pq.ParquetFile(source) as file:
        table, group = file.read(), file.metadata.row_group(0) if file.num_row_groups else None
        codec = group.column(0).compression if group else "SNAPPY"
        size = group.num_rows or None if group else None  # a failed run may have a table without rows
    made, metadata = table, table.schema.metadata or {}
    for number, field in enumerate(table.schema):
        if "string" in str(field.type):
            values = table[field.name].to_pylist()
            changed = changed_json(values, _once(change, f"column {field.name}"))
            made = made if changed == values else made.set_column(number, field, pa.array(changed, field.type))
    of_metadata = partial(change, "its metadata", "")
    described = {key: of_metadata(value.decode()).encode() for key, value in metadata.items()}
    if made is table and described == metadata:
        return source
    codec = "NONE" if codec == "UNCOMPRESSED" else codec
    pq.write_table(made.replace_schema_metadata(described or None), scratch, compression=codec, row_group_size=size)
    return scratch


def _once(change: Change, place: str) -> Change:
    """Changes each text once, wherever it is in a column."""
    once = cache(partial(change, place, ""))
    return lambda _, key, text: once(text)
