"""Redacts files: JSON and Parquet by their values, text as a whole. A file in which nothing changes keeps its bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError

_SNIFFED_BYTES = 8192
MOST_BYTES = 1 << 30
"""A larger text or JSON file is not archived, because it is searched for secrets as a whole."""


class _OfJson(Protocol):
    def __call__(self, value: Any, key: str = "") -> Any: ...


def redact_file(
    source: Path, scratch: Path, *, text: Callable[[str], str], json: _OfJson, refuse: Callable[[Path], None]
) -> Path:
    """`source` if nothing changes, else `scratch` with the changed content; other kinds of files go to `refuse`."""
    if source.suffix == ".parquet":
        changed = _redact_parquet(source, scratch, text)
    elif source.suffix == ".json":
        changed = _redact_json(source, scratch, json)
    elif _is_text(source):
        changed = _redact_text(source, scratch, text)
    else:
        refuse(source)
        return source
    if not changed:
        scratch.unlink(missing_ok=True)
    return scratch if changed else source


def texts_of(source: Path, is_suspect: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
    """Texts of a file: the place, the key (in JSON), and the text.

    Of a text file, if it is suspect: first each line, then each two lines, then the whole.
    """
    if source.suffix == ".parquet":
        with pq.ParquetFile(source) as file:
            yield "its metadata", "", str(file.schema_arrow.metadata)
            for name in _columns_with_text(file.schema_arrow):
                for batch in file.iter_batches(columns=[name]):
                    yield from ((f"column {name}", "", value) for value in _texts(batch.column(0).to_pylist()))
    elif source.suffix == ".json":
        yield from _texts_of_json(_read_json(source), "", "")
    elif is_suspect(text := _read(source)):
        lines = [f"{line}\n" for line in text.split("\n")]
        yield from ((f"line {number}", "", line) for number, line in enumerate(lines, 1))
        for number, (line, following) in enumerate(pairwise(lines), 1):
            yield f"lines {number} and {number + 1}", "", line + following
        yield f"lines 1 to {len(lines)}", "", text


def _read(source: Path) -> str:
    if (size := source.stat().st_size) > MOST_BYTES:
        most = f"has {size >> 20} MiB, more than the {MOST_BYTES >> 20} that are searched for secrets"
        raise ServelabError(f"{source}: {most}; archive without the run that it is of")
    return source.read_bytes().decode(errors="surrogateescape")


def _redact_text(source: Path, scratch: Path, text: Callable[[str], str]) -> bool:
    before = _read(source)
    after = text(before)
    if after != before:
        scratch.write_bytes(after.encode(errors="surrogateescape"))
    return after != before


def _redact_json(source: Path, scratch: Path, redact: _OfJson) -> bool:
    before = _read_json(source)
    after = redact(before)
    if after == before:
        return False
    scratch.write_text(json.dumps(after, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return True


def _redact_parquet(source: Path, scratch: Path, text: Callable[[str], str]) -> bool:
    """Works row group by row group and keeps the codec and the row groups."""
    seen: dict[str, str] = {}

    def once(value: str) -> str:
        if value not in seen:
            seen[value] = text(value)
        return seen[value]

    changed = False
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        metadata = {key: once(value.decode()).encode() for key, value in (schema.metadata or {}).items()}
        changed |= metadata != (schema.metadata or {})
        schema = schema.with_metadata(metadata or None)
        codec = file.metadata.row_group(0).column(0).compression if file.num_row_groups else "SNAPPY"
        with pq.ParquetWriter(scratch, schema, compression="NONE" if codec == "UNCOMPRESSED" else codec) as writer:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number)
                for name in _columns_with_text(schema):
                    values = table[name].to_pylist()
                    made = _map_texts(values, once)
                    if made != values:
                        changed = True
                        position = schema.get_field_index(name)
                        table = table.set_column(position, schema.field(name), pa.array(made, schema.field(name).type))
                writer.write_table(
                    table.replace_schema_metadata(schema.metadata), row_group_size=max(1, table.num_rows)
                )
                seen.clear()
    return changed


def _columns_with_text(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if "string" in str(field.type)]


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Plain data with every text changed, except keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _map_texts(item, change) for key, item in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _texts_of_json(value: Any, place: str, key: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield place or "its keys", "", name
            yield from _texts_of_json(item, f"{place}.{name}" if place else name, name)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            before = value[number - 1] if number else None
            named = before if isinstance(before, str) and before.startswith("-") else key
            yield from _texts_of_json(item, f"{place}.{number}", named)
    elif isinstance(value, str):
        yield place, key, value


def _read_json(source: Path) -> Any:
    try:
        return json.loads(source.read_bytes())
    except ValueError as error:
        raise ServelabError(f"{source}: not valid JSON: {error}") from None


def _is_text(source: Path) -> bool:
    with source.open("rb") as file:
        return b"\0" not in file.read(_SNIFFED_BYTES)
