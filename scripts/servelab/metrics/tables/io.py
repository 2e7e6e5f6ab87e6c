"""Reads and writes the Parquet tables of this workflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.core.files import replacing

if TYPE_CHECKING:
    import pandas as pd  # slow to load, and not every job that writes a table needs it


_FOR_THREADS_BYTES = 1_000_000
"""Size of a file that is read faster by several threads."""


def read_table(path: Path, schema: pa.Schema | None = None) -> pd.DataFrame:
    """A table with the columns of `schema`, or all that it has; `ServelabError` if it cannot be read so."""
    return read_tables([path], schema)


def read_tables(paths: Sequence[Path], schema: pa.Schema | None = None) -> pd.DataFrame:
    """The rows of all tables, in the order given; a column that one of them lacks is null there."""
    tables = []
    for path in paths:
        try:
            tables.append(pq.read_table(path, schema=schema))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ServelabError(f"{path}: not a readable Parquet file: {error}") from None
    frame: pd.DataFrame = pa.concat_tables(tables, promote_options="permissive").to_pandas()
    return frame


def read_arrow(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A table as its file has it, or these of its columns; raises what pyarrow raises where it cannot.

    `pq.read_table` would load pandas for it, which takes longer than all else that measuring a run loads.
    """
    with pq.ParquetFile(path) as file:
        return file.read(columns=columns, use_threads=path.stat().st_size > _FOR_THREADS_BYTES)


def read_bytes(content: bytes, schema: pa.Schema) -> pa.Table:
    """A table from a file's content, with the columns of `schema`; raises what pyarrow raises where it cannot."""
    # a fifth of the time that `pq.read_table` takes for a small file
    table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=len(content) > _FOR_THREADS_BYTES)
    return table if table.schema.equals(schema) else pq.read_table(pa.BufferReader(content), schema=schema)


def write_table(table: pa.Table, path: Path) -> None:
    """Writes Parquet, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary)
