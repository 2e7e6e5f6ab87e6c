"""How two versions of a file differ in what they say: the first difference, in words."""

from __future__ import annotations

import json
import math
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

TOLERANCE = 1e-9
"""Relative: sums of the same numbers may differ in their last digits between processors."""
DRAWN = (".png", ".svg")
"""Drawings: their bytes depend on a machine's fonts. What they show stands in the chart's JSON beside them."""
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_SHOWN = 100


def difference(archived: Path, again: Path) -> str | None:
    """The first difference of a file of an archive from the same one made again; None where they say the same.

    Tables are compared value by value, JSON key by key, text line by line without the drawings in it. Of drawings only
    those texts that a chart has are compared.
    """
    if archived.read_bytes() == again.read_bytes():
        return None
    match archived.suffix:
        case ".parquet":
            return _of_tables(archived, again)
        case ".json":
            return _of_json(json.loads(archived.read_bytes()), json.loads(again.read_bytes()))
        case ".png":
            return None
        case ".svg":
            return _of_text(_labels(archived), _labels(again))
        case _:
            return _of_text(*(_SVG.sub("<svg/>", path.read_text(encoding="utf-8")) for path in (archived, again)))


def _of_tables(archived: Path, again: Path) -> str | None:
    tables = [pq.read_table(path) for path in (archived, again)]
    names = [table.column_names for table in tables]
    if names[0] != names[1]:
        other = [name for name in [*names[0], *names[1]] if (name in names[0]) != (name in names[1])]
        return f"columns {', '.join(other) or 'are in another order'}"
    if tables[0].num_rows != tables[1].num_rows:
        return f"{tables[0].num_rows} rows; made again, {tables[1].num_rows}"
    for name in names[0]:
        columns = [table.column(name) for table in tables]
        if columns[0].equals(columns[1]):
            continue
        for row, (value, other_value) in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            if found := _of_json(value, other_value):
                return f"row {row}, column {name}: {found}"
    return None


def _of_json(value: Any, again: Any, path: str = "") -> str | None:
    at = f"{path}: " if path else ""
    if isinstance(value, dict) and isinstance(again, dict):
        if list(value) != list(again) and set(value) != set(again):
            other = sorted(set(value) ^ set(again))
            return f"{at}{', '.join(map(str, other))} is in one of the two"
        return next(
            (found for key in value if (found := _of_json(value[key], again[key], f"{path}.{key}".lstrip(".")))), None
        )
    if isinstance(value, list) and isinstance(again, list):
        if len(value) != len(again):
            return f"{at}{len(value)} entries; made again, {len(again)}"
        pairs = enumerate(zip(value, again, strict=True))
        return next(
            (found for number, (one, other) in pairs if (found := _of_json(one, other, f"{path}[{number}]"))), None
        )
    if _is_number(value) and _is_number(again):
        same = math.isclose(value, again, rel_tol=TOLERANCE) or (math.isnan(value) and math.isnan(again))
        return None if same else f"{at}{value}; made again, {again}"
    same = value == again and type(value) is type(again)
    return None if same else f"{at}{_cut(value)}; made again, {_cut(again)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _of_text(text: str, again: str) -> str | None:
    lines = zip_longest(text.splitlines(), again.splitlines(), fillvalue="(no line)")
    for number, (one, other) in enumerate(lines, 1):
        if one != other:
            start = next(
                (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
            )
            start = max(0, start - 20)
            return f"line {number}: {_cut(one[start:])}; made again, {_cut(other[start:])}"
    return None


def _labels(path: Path) -> str:
    """What an SVG says of each mark, a line each; texts that are cut to fit depend on the font."""
    return "\n".join(sorted(re.findall(r'aria-label="([^"]*)"', path.read_text(encoding="utf-8"))))


def _cut(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
