"""Files without what must not be archived: JSON and Parquet by their values, text by lines, in memory that stays small.

A file in which nothing changes is left as it is, to the byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.credentials import REDACTED
from servelab.errors import ServelabError

_SNIFFED_BYTES = 8192
_KEY_BEGINS, _KEY_ENDS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    re.compile(r"-----END [A-Z ]*PRIVATE KEY-----"),
)


class _OfJson(Protocol):
    def __call__(self, value: Any, key: str = "") -> Any: ...


def redact_file(
    source: Path, scratch: Path, *, text: Callable[[str], str], json: _OfJson, refuse: Callable[[Path], None]
) -> Path:
    """`source`, or `scratch` with its content changed by `text` or `json`; what is neither goes to `refuse`."""
    if source.suffix == ".parquet":
        changed = _redact_parquet(source, scratch, text)
    elif source.suffix == ".json":
        changed = _redact_json(source, scratch, json)
    elif _is_text(source):
        changed = _redact_lines(source, scratch, text)
    else:
        refuse(source)
        return source
    if not changed:
        scratch.unlink(missing_ok=True)
    return scratch if changed else source


def texts_of(source: Path) -> Iterator[tuple[str, str, str]]:
    """Every text of a file: where it stands, the key it stands under (of JSON), and itself."""
    if source.suffix == ".parquet":
        with pq.ParquetFile(source) as file:
            yield "its metadata", "", str(file.schema_arrow.metadata)
            for name in _columns_with_text(file.schema_arrow):
                for batch in file.iter_batches(columns=[name]):
                    yield from ((f"column {name}", "", value) for value in _texts(batch.column(0).to_pylist()))
    elif source.suffix == ".json":
        yield from _texts_of_json(_read_json(source), "", "")
    else:
        with source.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield f"line {number}", "", line.decode(errors="surrogateescape")


def _redact_lines(source: Path, scratch: Path, text: Callable[[str], str]) -> bool:
    changed = in_key = False
    with source.open("rb") as before, scratch.open("wb") as after:
        for line in before:
            given = line.decode(errors="surrogateescape")
            if in_key:
                in_key, made = not _KEY_ENDS.search(given), ""
            elif _KEY_BEGINS.search(given) and not _KEY_ENDS.search(given):
                in_key, made = True, _KEY_BEGINS.split(given)[0] + REDACTED + "\n"
            else:
                made = text(given)
            changed |= made != given
            after.write(made.encode(errors="surrogateescape"))
    return changed


def _redact_json(source: Path, scratch: Path, redact: _OfJson) -> bool:
    before = _read_json(source)
    after = redact(before)
    if after == before:
        return False
    scratch.write_text(json.dumps(after, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return True


def _redact_parquet(source: Path, scratch: Path, text: Callable[[str], str]) -> bool:
    """Row group by row group, with the codec and the row groups of the original."""
    seen: dict[str, str] = {}

    def once(value: str) -> str:
        if value not in seen:
            seen[value] = text(value)
        return seen[value]

    changed = False
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        told = {key: once(value.decode()).encode() for key, value in (schema.metadata or {}).items()}
        changed |= told != (schema.metadata or {})
        schema = schema.with_metadata(told or None)
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
    """Plain data with every text in it changed, keys aside."""
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
