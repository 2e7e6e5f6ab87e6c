"""The Markdown table of `llama-bench`: a row for each test, which is a block.

Source: `tools/llama-bench/llama-bench.cpp`, `markdown_printer`; builds from 2024 to 2026. A row is the mean rate of a
test without a server, so its metrics are its own.
"""

from __future__ import annotations

import re
from dataclasses import replace

from servelab.recorded import readers
from servelab.recorded.readers.documents import Cells
from servelab.recorded.readers.pieces import Piece

_RATE = re.compile(r"(?P<mean>\d+\.\d\d) ± (?P<std>\d+\.\d\d)")
_TEST = re.compile(r"(?:pp ?(?P<prompt>\d+))?\+?(?:tg ?(?P<generated>\d+))?(?: @ d ?(?P<depth>\d+))?")


class LlamaBenchReader:
    """Reads each row."""

    tool = "llama-bench"
    form = "grid"
    markers = frozenset({"model", "size", "params", "backend", "test", "t/s"})
    others: tuple[frozenset[str], ...] = ()

    def knows(self, name: str) -> bool:
        """Whether it prints a column of such a name."""
        return name in self.markers

    def read(self, piece: Piece) -> list[readers.Block]:
        """A block for each row."""
        (grid,) = piece.grids
        columns = grid.header
        blocks = []
        for row in grid.rows:
            cells = Cells(piece)
            values = dict(zip(columns, row.cells, strict=True))
            rate, test = _RATE.fullmatch(values["t/s"]), _TEST.fullmatch(values["test"])
            if rate is None or test is None or not values["test"]:
                raise cells.saved.error(
                    f"`{values['test']}: {values['t/s']}` is no test and rate of llama-bench", row.line
                )
            if test["prompt"] and test["generated"]:
                metric = "total_tokens_per_s"
            else:
                metric = "prompt_tokens_per_s" if test["prompt"] else "generated_tokens_per_s"
            for statistic in ("mean", "std"):
                cells.add((metric, statistic), rate[statistic], row, 2)
            block = cells.saved.block(
                tool=self.tool,
                version=None,
                definitions={
                    metric: "of one sequence without a server: the mean over repetitions, tokens / time of a test"
                },
                settings={name: value for name, value in values.items() if name != "t/s"},
                unknown=[],
            )
            blocks.append(replace(block, first_line=row.line, last_line=row.line))
        return blocks


readers.READERS.register("llama-bench, Markdown", LlamaBenchReader())
