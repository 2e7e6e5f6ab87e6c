"""The block that LMDeploy's profiling scripts print, since 0.7.

Source: `lmdeploy/profiler.py`, `Profiler.summarize`; times are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from servelab.recorded.readers.consistency import TOKEN_RATES
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import LATENCIES, READERS, Entry, FigureForm, Reader, ToolRun, statistic_of

_COLUMNS = re.compile(r"mean(?: +P\d+(?:\.\d+)?)+")


def _runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """Rows of one number, then rows of a mean and percentiles."""
    columns: list[str | None] = []
    entries: list[Entry] = []
    settings = {}
    for line, name, text, raw in piece.rows:
        values = text.split()
        if _COLUMNS.fullmatch(raw):
            columns = [statistic_of(column) for column in raw.split()]
        elif name in reader.families:
            if len(values) != len(columns):
                raise piece.error(f"{len(values)} numbers under {len(columns)} columns", line)
            pairs = zip(columns, values, strict=True)
            entries += [Entry(name, "N/A" if each == "inf" else each, line, column) for column, each in pairs]
        elif name in reader.figures or not text or columns:
            entries += [Entry(name, text, line, raw=raw)] if not re.fullmatch(r"-{20,}", raw) else []
        else:
            settings[name] = text
    yield ToolRun(entries, settings)


READERS.register(
    "LMDeploy, console",
    Reader(
        tool="lmdeploy",
        form="frame",
        markers=frozenset({"Benchmark duration", "Successful requests", "End-to-end Latency"}),
        figures={
            "Benchmark duration": FigureForm("duration_s", 3),
            "Total requests": FigureForm("requests", 0),
            "Successful requests": FigureForm("requests_completed", 0),
            "Total input tokens": FigureForm("input_tokens", 0),
            "Total generated tokens": FigureForm("output_tokens", 0),
            "Input throughput (tok/s)": FigureForm("input_tokens_per_s", 3),
            "Output throughput (tok/s)": FigureForm("output_tokens_per_s", 3),
            "Request throughput (req/s)": FigureForm("requests_per_s", 3),
        },
        families={
            "End-to-end Latency": FigureForm("e2el_ms", 3, 1000),
            "Time to First Token (TTFT)": FigureForm("ttft_ms", 3, 1000),
            "Time per Output Token (TPOT)": FigureForm("tpot_ms", 3, 1000),
            "Inter-token Latency (ITL)": FigureForm("itl_ms", 3, 1000),
        },
        required=(
            "duration_s",
            "requests",
            "requests_completed",
            "input_tokens",
            "output_tokens",
            "input_tokens_per_s",
            "output_tokens_per_s",
            "requests_per_s",
            "e2el_ms",
            "tpot_ms",
        ),
        rules=TOKEN_RATES,
        within_run=LATENCIES,
        definitions={"tpot_ms": "(E2EL − TTFT) / tokens after the first event"},
        version=">=0.7.0",
        runs=_runs,
    ),
)
