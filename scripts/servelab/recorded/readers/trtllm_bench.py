"""The report of `trtllm-bench throughput` and `latency`, releases 0.17 to 1.2.

Source: `tensorrt_llm/bench/dataclasses/reporting.py`, `report_statistics`.
"""

from __future__ import annotations

import re

from servelab.recorded import readers
from servelab.recorded.readers.consistency import Identity, ValueRange, value_of
from servelab.recorded.readers.documents import Cells
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import GridRow

_NUMBERS = {
    "REQUEST DETAILS: Number of requests": ("requests_completed", readers.VALUE, 0, 1),
    "REQUEST DETAILS: Number of concurrent requests": ("concurrency", readers.VALUE, 4, 1),
    "REQUEST DETAILS: Average Input Length (tokens)": ("input_tokens_per_request", "mean", 4, 1),
    "REQUEST DETAILS: Average Output Length (tokens)": ("output_tokens_per_request", "mean", 4, 1),
    "PERFORMANCE OVERVIEW: Request Throughput (req/sec)": ("requests_per_s", readers.VALUE, 4, 1),
    "PERFORMANCE OVERVIEW: Total Output Throughput (tokens/sec)": ("output_tokens_per_s", readers.VALUE, 4, 1),
    "PERFORMANCE OVERVIEW: Total Token Throughput (tokens/sec)": ("total_tokens_per_s", readers.VALUE, 4, 1),
    "PERFORMANCE OVERVIEW: Total Latency (ms)": ("duration_s", readers.VALUE, 4, 0.001),
    "PERFORMANCE OVERVIEW: Average request latency (ms)": ("e2el_ms", "mean", 4, 1),
    "PERFORMANCE OVERVIEW: Average time-to-first-token [TTFT] (ms)": ("ttft_ms", "mean", 4, 1),
    "PERFORMANCE OVERVIEW: Average time-per-output-token [TPOT] (ms)": ("tpot_ms", "mean", 4, 1),
}
_PERCENTILE = re.compile(
    r"PERFORMANCE OVERVIEW: \[(?P<metric>Latency|TTFT|TPOT)\] (?P<statistic>P\d\d|MINIMUM|MAXIMUM|AVERAGE)"
)
_METRICS = {"Latency": "e2el_ms", "TTFT": "ttft_ms", "TPOT": "tpot_ms"}
_STATISTICS = {"MINIMUM": "minimum", "MAXIMUM": "maximum", "AVERAGE": "mean", "P50": "median"}
_VERSION = re.compile(r".*: TensorRT[ -]LLM Version")
_REQUIRED = ("requests_per_s", "output_tokens_per_s", "duration_s")
_LAST = "= DATASET DETAILS"
_THOUSANDTH = ValueRange(0.001, 0.001)

_IDENTITIES = (
    Identity(
        value_of("requests_per_s"),
        (value_of("requests_completed"), value_of("duration_s")),
        lambda completed, duration: completed / duration,
        "requests_completed / duration_s",
    ),
    Identity(
        value_of("output_tokens_per_s"),
        (value_of("requests_per_s"), ("output_tokens_per_request", "mean")),
        lambda rate, tokens: rate * tokens,
        "requests_per_s × mean of output_tokens_per_request",
    ),
    Identity(
        value_of("concurrency"),
        (("e2el_ms", "mean"), value_of("requests_per_s")),
        lambda latency, rate: latency * rate * _THOUSANDTH,
        "mean of e2el_ms × requests_per_s / 1000",
    ),
)


class TrtllmBenchReader:
    """Reads the sections of requests and of performance."""

    tool = "trtllm-bench"
    form = "frame"
    markers = frozenset({"= PERFORMANCE OVERVIEW", "PERFORMANCE OVERVIEW: Request Throughput (req/sec)"})

    def knows(self, name: str) -> bool:
        """Whether it prints a row of such a name."""
        return name in _NUMBERS or _PERCENTILE.fullmatch(name) is not None

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of a report."""
        cells = Cells(piece)
        seen: dict[str, int] = {}
        version = None
        settings: dict[str, str] = {}
        for row in piece.rows:
            cell = GridRow(row.line, (row.label,))
            if self.knows(row.label):
                if row.label in seen:
                    raise cells.saved.error(f"`{row.label}` occurs twice, first in line {seen[row.label]}", row.line)
                seen[row.label] = row.line
                if not row.text:
                    raise cells.saved.error(f"`{row.label}` has no value: the line is cut off", row.line)
            if row.label in _NUMBERS:
                metric, statistic, decimals, factor = _NUMBERS[row.label]
                cells.add((metric, statistic), row.text, cell, decimals, factor)
            elif match := _PERCENTILE.fullmatch(row.label):
                statistic = _STATISTICS.get(match["statistic"], match["statistic"].lower())
                cells.add((_METRICS[match["metric"]], statistic), row.text, cell, 4)
            elif _VERSION.fullmatch(row.label):
                version = row.text
            elif not row.label.startswith(("DATASET", "PERFORMANCE", "= ")):
                settings[row.label.partition(": ")[2]] = row.text
        if _LAST not in piece.names:
            raise cells.saved.error("the section DATASET DETAILS is missing: the report is cut off")
        for metric in _REQUIRED:
            if (metric, readers.VALUE) not in cells.saved.figures:
                raise cells.saved.error(f"the line of {metric} is missing")
        return [
            cells.saved.block(
                tool=self.tool,
                version=version,
                definitions={
                    "requests_per_s": "of requests handed to the engine in process, without a server",
                    "duration_s": "from the first start of a request to the last end",
                },
                settings=settings,
                unknown=[],
                identities=_IDENTITIES,
                within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
            )
        ]


readers.READERS.register("trtllm-bench, console", TrtllmBenchReader())
