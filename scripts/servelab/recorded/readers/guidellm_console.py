"""The tables that guidellm 0.8 prints at the end of a run: a row for each benchmark.

Source: `guidellm/benchmark/outputs/console.py` of 0.8.1. Earlier releases print other tables, which are not read.
"""

from __future__ import annotations

import re
from itertools import zip_longest

from servelab.recorded import readers
from servelab.recorded.readers.consistency import LOOSE_REQUESTS, TOKEN_RATIO
from servelab.recorded.readers.guidellm import DEFINITIONS
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import Grid, GridRow
from servelab.recorded.readers.tables import Cells

_OF_ALL = "of all requests, failed and incomplete ones included"

_RUN = {
    ("Timings", "Dur", "Sec"): ("duration_s", 1),
    ("Requests", "Comp", "Tot"): ("requests_completed", 0),
    ("Requests", "Inc", "Tot"): ("requests_incomplete", 0),
    ("Requests", "Err", "Tot"): ("requests_failed", 0),
    ("Input Tokens", "Comp", "Tot"): ("input_tokens", 1),
    ("Output Tokens", "Comp", "Tot"): ("output_tokens", 1),
}
_THROUGHPUT = {
    ("Requests", "Concurrency", "Mean"): ("concurrency", 1),
    ("Requests", "Per Sec", "Mean"): ("requests_per_s", 1),
    ("Input Tokens", "Per Sec", "Mean"): ("input_tokens_per_s", 1),
    ("Output Tokens", "Per Sec", "Mean"): ("output_tokens_per_s", 1),
    ("Total Tokens", "Per Sec", "Mean"): ("total_tokens_per_s", 1),
}
"""Heads of a column → metric, and digits after the point."""
_LATENCIES = {
    ("Request Latency", "Sec"): ("e2el_ms", 1000),
    ("TTFT", "ms"): ("ttft_ms", 1),
    ("ITL", "ms"): ("tpot_ms", 1),
    ("TPOT", "ms"): ("normalized_e2el_ms", 1),
}
_STATISTICS = {"Mean": "mean", "Mdn": "median", "p95": "p95"}
_NOTED = re.compile(r"(?P<number>[\d.,]+)(?: ± [\d.,]+|\*)?")
"""A number, perhaps with half its confidence interval, or marked as without one."""


class GuidellmConsoleReader:
    """Joins the rows of the tables of runs, latencies and throughputs."""

    tool = "guidellm"
    form = "grid"
    markers = frozenset({"Benchmark", "Strategy", "Timings", "Start", "End", "Dur"})
    others = (
        frozenset({"Benchmark", "Strategy", "Request Latency", "TTFT", "ITL", "TPOT"}),
        frozenset({"Benchmark", "Strategy", "Concurrency", "Per Sec", "Total Tokens"}),
    )

    def knows(self, name: str) -> bool:
        """Whether it prints a column of such a name."""
        return name in self.markers

    def read(self, piece: Piece) -> list[readers.Block]:
        """A block for each benchmark."""
        saved = Cells(piece).saved
        if len(piece.grids) != 3:
            raise saved.error(f"{len(piece.grids)} of the three tables with figures are there: the output is cut off")
        rows = [grid.rows for grid in piece.grids]
        blocks = []
        for number, (run, latency, throughput) in enumerate(zip_longest(*rows)):
            joined = [row for row in (run, latency, throughput) if row is not None]
            if len(joined) < 3 or len({row.cells[0] for row in joined}) > 1:
                raise saved.error("its tables have other benchmarks", joined[0].line)
            blocks.append(self._block(piece, number, joined))
        return blocks

    def _block(self, piece: Piece, number: int, rows: list[GridRow]) -> readers.Block:
        cells = Cells(piece)
        for grid, row in zip(piece.grids, rows, strict=True):
            for heads, text in zip(_heads(grid), row.cells, strict=True):
                if heads in _RUN or heads in _THROUGHPUT:
                    metric, decimals = (_RUN | _THROUGHPUT)[heads]
                    cells.add((metric, readers.VALUE), text, row, decimals)
                elif heads[:2] in _LATENCIES and heads[2] in _STATISTICS:
                    metric, factor = _LATENCIES[heads[:2]]
                    noted = _NOTED.fullmatch(text)
                    cells.add((metric, _STATISTICS[heads[2]]), noted["number"] if noted else text, row, 1, factor)
        read = {metric for metric, _ in cells.saved.figures}
        wanted = {metric for metric, _ in (_RUN | _THROUGHPUT).values()} | {metric for metric, _ in _LATENCIES.values()}
        if missing := sorted(wanted - read):
            raise cells.saved.error(f"columns of {', '.join(missing)} are missing", rows[0].line)
        rates = {metric: f"{_OF_ALL}; {DEFINITIONS.get(metric, '')}".rstrip("; ") for metric, _ in _THROUGHPUT.values()}
        return cells.saved.block(
            tool=self.tool,
            version=">=0.8.0",
            definitions={**DEFINITIONS, **rates},
            settings={"benchmark": number, "strategy": rows[0].cells[0]},
            unknown=[],
            identities=(LOOSE_REQUESTS, TOKEN_RATIO)
            if cells.saved.figures["requests_failed", "value"].value == 0
            else (),
        )


def _heads(grid: Grid) -> list[tuple[str, str, str]]:
    """The three heads of each column; an empty one is that of the column before, as the tool joins equal ones."""
    heads = [list(row.cells) for row in grid.groups[0]]
    if len(heads) != 3:
        return []
    for row in heads:
        for column in range(1, len(row)):
            row[column] = row[column] or row[column - 1]
    return [(heads[0][column], heads[1][column], heads[2][column]) for column in range(len(heads[0]))]


readers.READERS.register("guidellm, console", GuidellmConsoleReader())
