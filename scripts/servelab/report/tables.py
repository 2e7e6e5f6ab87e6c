"""Writes every table of a report as CSV and Parquet: its texts, the numbers behind them, and the runs they are of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from servelab.errors import ServelabError
from servelab.figures import NO_BREAK
from servelab.files import replacing
from servelab.report.table import Cell, Table


def tables_of(content: Any) -> Iterator[Table]:
    """Every table with a name in what the templates show, each once; `ServelabError` where two share a name."""
    seen: set[str] = set()
    for table in _tables(content):
        if table.name in seen:
            raise ServelabError(f"two tables of the report are named {table.name}")
        if table.name:
            seen.add(table.name)
            yield table


def frame(table: Table) -> pd.DataFrame:
    """All rows of a table.

    A column whose figures have numbers holds these, and `<column>, as shown` their texts; `<column>, note` and
    `<column>, run` are there where a cell has them.
    """
    columns: dict[str, list[Any]] = {}
    for position, name in enumerate(table.columns):
        cells = [row[position] for row in table.rows]
        if any(cell.value is not None for cell in cells):
            columns[name] = [cell.value for cell in cells]
            columns[f"{name}, as shown"] = [_text(cell) for cell in cells]
        else:
            columns[name] = [_text(cell) for cell in cells]
        if any(cell.note for cell in cells):
            columns[f"{name}, note"] = [cell.note.replace(NO_BREAK, " ") or None for cell in cells]
        if any(cell.run_id for cell in cells):
            columns[f"{name}, run"] = [cell.run_id for cell in cells]
    return pd.DataFrame(columns)


def write_tables(folder: Path, content: Any, others: Mapping[str, pd.DataFrame]) -> None:
    """Writes `<name>.csv` and `<name>.parquet` of each table of a report, and of `others` that it shows otherwise."""
    frames = {table.name: frame(table) for table in tables_of(content)}
    for name, rows in {**frames, **others}.items():
        with replacing(folder / f"{name}.csv") as path:
            rows.map(_in_csv).to_csv(path, index=False)
        with replacing(folder / f"{name}.parquet") as path:
            rows.to_parquet(path, index=False)


def _in_csv(value: Any) -> Any:
    """Lists as text, the rest as it is."""
    return "; ".join(map(str, value)) if isinstance(value, list | np.ndarray) else value


def _text(cell: Cell) -> str:
    return (cell.text + cell.mark).replace(NO_BREAK, " ")


def _tables(content: Any) -> Iterator[Table]:
    if isinstance(content, Table):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _tables(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from _tables(value)
    elif dataclasses.is_dataclass(content):
        for field in dataclasses.fields(content):
            yield from _tables(getattr(content, field.name))
