"""How the columns of a table are declared: name, type and meaning."""

from __future__ import annotations

import pyarrow as pa


def table_schema(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    """The schema of these columns, each with its meaning as its description."""
    return pa.schema([pa.field(name, kind, metadata={"description": text}) for name, kind, text in columns])
