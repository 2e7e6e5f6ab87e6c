"""Rows of a table as a numpy structured array: far quicker than a DataFrame for the few rows of one round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

RecordArray = npt.NDArray[np.void]
Floats = npt.NDArray[np.float64]


def record_array(table: pa.Table) -> RecordArray:
    """The rows of `table`; a column is `rows["sent_s"]`, and `rows[mask]` selects rows.

    Numbers are float64, NaN for null. Text and lists are objects, None for null.
    """
    kinds = [(field.name, np.float64 if _is_number(field.type) else np.object_) for field in table.schema]
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


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
