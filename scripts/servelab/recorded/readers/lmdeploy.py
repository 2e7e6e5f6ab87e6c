"""The block that LMDeploy's profiling scripts print, since 0.7.

Source: `lmdeploy/profiler.py`, `Profiler.summarize`; times are in seconds.
"""

from __future__ import annotations

import re

from servelab.recorded import readers
from servelab.recorded.readers.consistency import TOKEN_RATES
from servelab.recorded.readers.documents import Cells
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import GridRow

_NUMBERS = {
    "Benchmark duration": ("duration_s", 3),
    "Total requests": ("requests", 0),
    "Successful requests": ("requests_completed", 0),
    "Total input tokens": ("input_tokens", 0),
    "Total generated tokens": ("output_tokens", 0),
    "Input throughput (tok/s)": ("input_tokens_per_s", 3),
    "Output throughput (tok/s)": ("output_tokens_per_s", 3),
    "Request throughput (req/s)": ("requests_per_s", 3),
}
_LATENCIES = {
    "End-to-end Latency": "e2el_ms",
    "Time to First Token (TTFT)": "ttft_ms",
    "Time per Output Token (TPOT)": "tpot_ms",
    "Inter-token Latency (ITL)": "itl_ms",
}
_COLUMNS = re.compile(r"mean(?P<percentiles>(?: +P\d+(?:\.\d+)?)+)")


class LMDeployReader:
    """Reads rows of one number, then rows of a mean and percentiles."""

    tool = "lmdeploy"
    form = "frame"
    markers = frozenset({"Benchmark duration", "Successful requests", "End-to-end Latency"})

    def knows(self, name: str) -> bool:
        """Whether it prints a row of such a name."""
        return name in _NUMBERS or name in _LATENCIES

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block."""
        cells = Cells(piece)
        if piece.broken:
            raise cells.saved.error(piece.broken)
        columns: list[str] = []
        settings: dict[str, str] = {}
        unknown = []
        seen: dict[str, int] = {}
        for row in piece.rows:
            cell = GridRow(row.line, (row.label,))
            values = row.text.split()
            if match := _COLUMNS.fullmatch(row.raw):
                columns = ["mean", *(name.lower() for name in match["percentiles"].split())]
                continue
            if self.knows(row.label):
                if row.label in seen:
                    raise cells.saved.error(f"`{row.label}` occurs twice, first in line {seen[row.label]}", row.line)
                seen[row.label] = row.line
            if row.label in _NUMBERS:
                metric, decimals = _NUMBERS[row.label]
                if len(values) != 1:
                    raise cells.saved.error(f"`{row.label}` has {len(values)} numbers", row.line)
                cells.add((metric, readers.VALUE), values[0], cell, decimals)
            elif row.label in _LATENCIES:
                if len(values) != len(columns):
                    raise cells.saved.error(f"{len(values)} numbers under {len(columns)} columns", row.line)
                for statistic, text in zip(columns, values, strict=True):
                    statistic = "median" if statistic == "p50" else statistic
                    cells.add((_LATENCIES[row.label], statistic), "N/A" if text == "inf" else text, cell, 3, 1000)
            elif row.text and not columns:
                settings[row.label] = row.text
            elif not re.fullmatch(r"-{20,}", row.raw):
                unknown.append(readers.UnknownLine(row.line, row.raw))
        for name in (*_NUMBERS, "End-to-end Latency", "Time per Output Token (TPOT)"):
            if name not in seen:
                raise cells.saved.error(f"the line `{name}` is missing")
        return [
            cells.saved.block(
                tool=self.tool,
                version=">=0.7.0",
                definitions={"tpot_ms": "(E2EL − TTFT) / tokens after the first event"},
                settings=settings,
                unknown=unknown,
                identities=TOKEN_RATES,
                within_run=("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"),
            )
        ]


readers.READERS.register("LMDeploy, console", LMDeployReader())
