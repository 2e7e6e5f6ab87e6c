"""The first difference between two versions of a file, in words.

Where the same versions made both, they have the same bytes. Only numbers may differ, in their last digits, since sums
of the same numbers may do so between processors.
"""

from __future__ import annotations

import base64
import json
import math
import re
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.metrics.tables.io import read_arrow

TOLERANCE = 1e-9
"""Relative."""
_FRACTION = re.compile(r"(?<![\w.+-])[+-]?\d+(?:\.\d+(?:[eE][+-]?\d{1,2})?|[eE][+-]?\d{1,2})(?![\w.])")
"""A number with a fraction or an exponent in a text."""
_UNROUNDED = 14
"""Characters of a number that was not rounded for a reader, at least."""
_LAST_BITS = 1e-14
"""Relative: a number that happens to be short is a few units in the last place from its neighbour, as 0.3 is."""
_SHOWN = 100


def difference(archived: Path, again: Path) -> str | None:
    """The first difference of a file of an archive from the one made again; None if they are the same.

    Tables are compared value by value, text character by character except for the last digits of fractions. Pictures
    must have the same bytes.
    """
    before, after = archived.read_bytes(), again.read_bytes()
    if before == after:
        return None
    match archived.suffix:
        case ".parquet":
            try:
                return _of_tables(archived, again)
            except pa.ArrowException as error:
                return f"cannot be read: {_cut(str(error))}"
        case ".png":
            return "is not the picture that is drawn from its data"
    try:
        if archived.suffix == ".json" and (found := _of_json(json.loads(before), json.loads(after))):
            return found
        return of_text(before.decode(), after.decode())
    except (RecursionError, ValueError) as error:  # not UTF-8, or no JSON
        return f"cannot be read: {_cut(str(error))}"


def _of_tables(archived: Path, again: Path) -> str | None:
    tables = [read_arrow(path) for path in (archived, again)]
    names = [table.column_names for table in tables]
    if names[0] != names[1]:
        other = [name for name in [*names[0], *names[1]] if (name in names[0]) != (name in names[1])]
        return f"columns {', '.join(other) or 'are in another order'}"
    if not tables[0].schema.equals(tables[1].schema, check_metadata=True):
        return "the types or the metadata of its columns"
    if tables[0].num_rows != tables[1].num_rows:
        return f"{tables[0].num_rows} rows; recomputed, {tables[1].num_rows}"
    for name in names[0]:
        columns = [table.column(name) for table in tables]
        if columns[0].equals(columns[1]):
            continue
        for row, (value, other_value) in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            if found := _of_json(value, other_value):
                return f"row {row}, column {name}: {found}"
    if not tables[0].equals(tables[1]) and archived.read_bytes() == _written(tables[0], again):
        return None
    return "its values are those recomputed, but its bytes are not"


def _written(table: pa.Table, like: Path) -> bytes:
    """The bytes that the workflow writes for a table whose columns are those of the Parquet file `like`."""
    # reading gives the parts of lists another name than they were written with
    schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(pq.read_metadata(like).metadata[b"ARROW:schema"])))
    content = pa.BufferOutputStream()
    pq.write_table(table.cast(schema), content)
    return bytes(content.getvalue())


def _of_json(value: Any, again: Any, path: str = "") -> str | None:
    at = f"{path}: " if path else ""
    if isinstance(value, dict) and isinstance(again, dict):
        if set(value) != set(again):
            other = sorted(set(value) ^ set(again))
            return f"{at}{', '.join(map(str, other))} is in one of the two"
        return next(
            (found for key in value if (found := _of_json(value[key], again[key], f"{path}.{key}".lstrip(".")))), None
        )
    if isinstance(value, list) and isinstance(again, list):
        if len(value) != len(again):
            return f"{at}{len(value)} entries; recomputed, {len(again)}"
        pairs = enumerate(zip(value, again, strict=True))
        return next(
            (found for number, (one, other) in pairs if (found := _of_json(one, other, f"{path}[{number}]"))), None
        )
    if isinstance(value, float) and isinstance(again, float):
        same = _is_close(value, again) or (math.isnan(value) and math.isnan(again))
        return None if same else f"{at}{value}; recomputed, {again}"
    same = value == again and type(value) is type(again)
    return None if same else f"{at}{_cut(value)}; recomputed, {_cut(again)}"


def of_text(text: str, again: str) -> str | None:
    """The first difference of a text from the one made again; None if only last digits of fractions differ."""
    numbers = [_FRACTION.findall(each) for each in (text, again)]
    if _FRACTION.split(text) == _FRACTION.split(again) and all(map(_is_last_digit, *numbers)):
        return None
    lines = zip_longest(text.split("\n"), again.split("\n"), fillvalue="(no line)")
    for number, (one, other) in enumerate(lines, 1):
        if one != other:
            start = next(
                (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
            )
            start = max(0, start - 20)
            return f"line {number}: {_cut(one[start:])}; recomputed, {_cut(other[start:])}"
    return None


def _is_last_digit(number: str, again: str) -> bool:
    """Whether two written numbers are the same but for the last digits of a figure that was not rounded."""
    if number == again:
        return True
    if not (_is_as_written(number) and _is_as_written(again)):
        return False
    tolerance = TOLERANCE if min(len(number), len(again)) >= _UNROUNDED else _LAST_BITS
    return math.isclose(float(number), float(again), rel_tol=tolerance)


def _is_as_written(number: str) -> bool:
    """Whether a number is written as Python or JavaScript write it, which leaves no choice of sign, zeros or digits."""
    text = repr(float(number))
    return number in (text, text.replace("e-0", "e-"), f"{Decimal(text):f}")


def _is_close(value: float, again: float) -> bool:
    return math.isclose(value, again, rel_tol=TOLERANCE)


def _cut(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else value
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
