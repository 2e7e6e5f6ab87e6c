"""Finds the runs that a study's files name, in keys and columns like `run_id`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.metrics.tables.io import read_arrow

_KEY = re.compile(r"(?:^|_)run_ids?(?:_|$)")
_ID = re.compile(r"[0-9a-f]{20}")


def referenced_runs(files: Iterable[Path]) -> dict[str, Path]:
    """All runs that these JSON and Parquet files name, each with the first file that does.

    An unreadable file is a `ServelabError`.
    """
    found: dict[str, Path] = {}
    for file in files:
        for key, value in _named(file):
            if _KEY.search(key) and _ID.fullmatch(value):
                found.setdefault(value, file)
    return found


def read_json(path: Path) -> Any:
    """The content of a JSON file; `ServelabError` names one that is missing or broken."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ServelabError(f"{path}: missing") from None
    except (OSError, ValueError) as error:
        raise ServelabError(f"{path}: cannot be read: {error}") from None


def _named(file: Path) -> Iterator[tuple[str, str]]:
    """Key or column, and each text there."""
    if file.suffix == ".json":
        yield from _texts("", read_json(file))
        return
    try:
        names = [name for name in pq.read_schema(file).names if _KEY.search(name)]
        columns = read_arrow(file, names).columns
    except (OSError, pa.ArrowException) as error:
        raise ServelabError(f"{file}: cannot be read: {error}") from None
    for name, column in zip(names, columns, strict=True):
        values = column if pa.types.is_list(column.type) else column.unique()
        yield from _texts(name, values.to_pylist())


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(str(name), part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(key, part)
    elif isinstance(value, str):
        yield key, value
