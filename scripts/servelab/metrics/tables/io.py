"""Reads and writes the Parquet tables of this workflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.errors import ServelabError
from servelab.core.files import REMEDY, check_stage, replacing

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
            tables.append(pq.read_table(path, schema=schema, page_checksum_verification=True))
            tables[-1].validate(full=True)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ServelabError(f"{path}: not a readable Parquet file: {str(error).strip()}; {REMEDY}") from None
        if "stage" in tables[-1].schema.names and len(tables[-1]):
            check_stage(path, tables[-1]["stage"][0].as_py())
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
    """Writes Parquet with checksums, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


RecordArray = npt.NDArray[np.void]
Floats = npt.NDArray[np.float64]


def record_array(table: pa.Table) -> RecordArray:
    """The rows of `table`; a column is `rows["sent_s"]`, and `rows[mask]` selects rows.

    Numbers are float64, NaN for null. Text and lists are objects, None for null.
    """
    is_number = {kind: pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in table.schema.types}
    kinds = [(field.name, np.float64 if is_number[field.type] else np.object_) for field in table.schema]
    rows = np.empty(table.num_rows, dtype=kinds)
    for name in table.schema.names:
        rows[name] = table[name].to_numpy()
    return rows


def by_round(rows: RecordArray) -> dict[int, RecordArray]:
    """The rows of each round, by its number and in this order."""
    return {int(number): rows[rows["round"] == number] for number in np.unique(rows["round"])}


def known(rows: RecordArray, *columns: str) -> RecordArray:
    """The rows with a number in each of these columns."""
    return rows[~np.isnan([rows[name] for name in columns]).any(axis=0)]


def succeeded(requests: RecordArray) -> RecordArray:
    """The requests without an error."""
    return requests[[error is None for error in requests["error"]]]


def arrived(requests: RecordArray) -> RecordArray:
    """The requests that arrive by themselves: all but later turns of conversations, which follow an answer."""
    return requests[~(requests["turn"] > 0)]


def present(values: Floats) -> Floats:
    """The values without NaN."""
    return values[~np.isnan(values)]


def mean(values: Floats) -> float:
    """Mean of what is not NaN; NaN where there is nothing."""
    return _or_nan(np.mean, values)


def maximum(values: Floats) -> float:
    """The largest of what is not NaN; NaN where there is nothing."""
    return _or_nan(np.max, values)


def minimum(values: Floats) -> float:
    """The smallest of what is not NaN; NaN where there is nothing."""
    return _or_nan(np.min, values)


def _or_nan(statistic: Callable[[Floats], Any], values: Floats) -> float:
    values = present(values)
    return float(statistic(values)) if values.size else np.nan
