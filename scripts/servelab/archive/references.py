"""Which runs and pairs a study's files name, in keys and columns called `run_id`, `pair_id` or like it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.errors import ServelabError

_KEY = re.compile(r"(?:^|_)(run|pair)_ids?(?:_|$)")
_ID = re.compile(r"[0-9a-f]{20}")
_ELSEWHERE = "shared_with"


@dataclass
class References:
    """What files name, each with the first file that names it."""

    runs: dict[str, Path] = field(default_factory=dict)
    pairs: dict[str, Path] = field(default_factory=dict)
    elsewhere: dict[str, Path] = field(default_factory=dict)
    """Stages of other studies that have one of the runs too, as `studies/<study>/<stage>`."""


def references(files: Iterable[Path]) -> References:
    """Everything that these JSON and Parquet files name; a file that cannot be read is a `ServelabError`."""
    found = References()
    for file in files:
        for key, value in _named(file):
            if key == _ELSEWHERE and value.startswith("studies/"):
                found.elsewhere.setdefault(value, file)
            elif (match := _KEY.search(key)) and _ID.fullmatch(value):
                (found.runs if match.group(1) == "run" else found.pairs).setdefault(value, file)
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
        names = [name for name in pq.read_schema(file).names if name == _ELSEWHERE or _KEY.search(name)]
        columns = pq.read_table(file, columns=names).columns
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
