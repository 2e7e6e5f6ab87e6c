"""Blocks as one long table, a row a figure; of any number of files, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servelab.core.files import replacing
from servelab.recorded.readers import Block, ReadError, scan_file

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

Scan = Callable[[Path], Iterator[Block | ReadError]]
"""Gives the blocks and errors of a path."""

BATCH = 500
"""Blocks held at a time."""


def blocks_table(blocks: Iterable[Block]) -> pa.Table:
    """A row for each figure of some blocks."""
    columns: dict[str, list[object]] = {name: [] for name in BLOCKS.names}
    for block in blocks:
        for figure in block.figures:
            columns["file"].append(block.file.encode(errors="backslashreplace").decode())
            columns["block_line"].append(block.first_line)
            columns["line"].append(figure.line)
            columns["tool"].append(block.tool)
            columns["tool_version"].append(block.tool_version)
            columns["metric"].append(figure.metric)
            columns["statistic"].append(figure.statistic)
            columns["value"].append(figure.value)
            columns["definition"].append(block.definitions.get(figure.metric))
    return pa.table(columns, schema=BLOCKS)


def write_table(paths: Iterable[Path], destination: Path, scan: Scan = scan_file) -> list[ReadError]:
    """Writes a row for each figure of some files to Parquet, and gives the errors of what could not be read.

    The file appears whole or not at all.
    """
    errors: list[ReadError] = []
    with replacing(destination) as temporary, pq.ParquetWriter(temporary, BLOCKS) as writer:
        blocks = _blocks(paths, errors, scan)
        while batch := list(islice(blocks, BATCH)):
            writer.write_table(blocks_table(batch))
    return errors


def _blocks(paths: Iterable[Path], errors: list[ReadError], scan: Scan) -> Iterator[Block]:
    for path in paths:
        for block in scan(path):
            if isinstance(block, ReadError):
                errors.append(block)
            else:
                yield block
