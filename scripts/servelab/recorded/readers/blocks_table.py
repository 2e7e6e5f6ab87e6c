"""Blocks as one long table, a row a figure; of any number of files, in bounded memory."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
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
R = TypeVar("R")
BATCH = 200
"""Paths that are read at a time."""
_WORTH_ITS_START = 5 * BATCH
"""Paths from which on a second process saves more time than its start takes."""


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
    paths: Iterable[T], destination: Path, scan: Callable[[T], Iterable[Block | ReadError]], processes: int = 1
) -> list[ReadError]:
    """Writes a row for each figure of some paths to Parquet, and gives the errors of what could not be read.

    `scan` gives the blocks and errors of a path. Rows and errors are in the paths' order, whatever the number of
    processes. The file appears whole or not at all.
    """
    errors: list[ReadError] = []
    remaining = iter(paths)
    batches = iter(lambda: list(islice(remaining, BATCH)), [])
    first = list(islice(batches, _WORTH_ITS_START // BATCH))
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(destination))
        writer = stack.enter_context(pq.ParquetWriter(temporary, BLOCKS))
        read = partial(_read, scan)
        done: Iterator[tuple[pa.Table, list[ReadError]]] = map(read, chain(first, batches))
        if processes > 1 and len(first) * BATCH == _WORTH_ITS_START:
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(processes, mp_context=spawn))
            done = _in_order(pool, read, chain(first, batches), processes)
        for table, wrong in done:
            writer.write_table(table)
            errors += wrong
    return errors


def _in_order(pool: ProcessPoolExecutor, work: Callable[[T], R], items: Iterator[T], processes: int) -> Iterator[R]:
    """As `map`, with few results waiting."""
    waiting = deque(pool.submit(work, item) for item in islice(items, 2 * processes))
    while waiting:
        yield waiting.popleft().result()
        waiting.extend(pool.submit(work, item) for item in islice(items, 1))


def _read(scan: Callable[[T], Iterable[Block | ReadError]], paths: Sequence[T]) -> tuple[pa.Table, list[ReadError]]:
    blocks: list[Block] = []
    errors: list[ReadError] = []
    for path in paths:
        for found in scan(path):
            if isinstance(found, ReadError):
                errors.append(found)
            else:
                blocks.append(found)
    return blocks_table(blocks), errors
