"""Blocks as one long table, a row a figure; of any number of files, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.files import replacing
from servelab.recorded.readers import Block, ReadError

BLOCKS = pa.schema(
    [
        ("file", pa.string()),
        ("block_line", pa.int32()),
        ("line", pa.int32()),
        ("tool", pa.string()),
        ("tool_version", pa.string()),
        ("metric", pa.string()),
        ("statistic", pa.string()),
        ("value", pa.float64()),
        ("definition", pa.string()),
    ]
)
"""`block_line` is where the block begins, `line` where the figure stands; `value` is null where the tool has none."""

T = TypeVar("T")


def blocks_table(blocks: Iterable[Block]) -> pa.Table:
    """A row for each figure of some blocks."""
    columns: dict[str, list[object]] = {name: [] for name in BLOCKS.names}
    for block in blocks:
        count = len(block.figures)
        columns["file"] += [block.file.encode(errors="backslashreplace").decode()] * count
        columns["block_line"] += [block.first_line] * count
        columns["tool"] += [block.tool] * count
        columns["tool_version"] += [block.tool_version] * count
        for name in ("line", "metric", "statistic", "value"):
            columns[name] += [getattr(figure, name) for figure in block.figures]
        columns["definition"] += [block.definitions.get(figure.metric) for figure in block.figures]
    return pa.table(columns, schema=BLOCKS)


def write_table(
    paths: Iterable[T], destination: Path, scan: Callable[[T], Iterable[Block | ReadError]]
) -> list[ReadError]:
    """Writes a row for each figure of some paths to Parquet, and returns the errors of what could not be read.

    `scan` gives the blocks and errors of a path. The file appears whole or not at all.
    """
    errors: list[ReadError] = []
    with replacing(destination) as temporary, pq.ParquetWriter(temporary, BLOCKS) as writer:
        for path in paths:
            found = list(scan(path))
            errors += [each for each in found if isinstance(each, ReadError)]
            writer.write_table(blocks_table(each for each in found if isinstance(each, Block)))
    return errors
