"""The tables that `evalscope perf` prints: the summary of 1.x, and its percentiles; the summary of 0.1x is read too.

Source: `evalscope/perf/utils/perf_models.py` of 1.14.1, `to_table`; 0.1x from published output.
"""

from __future__ import annotations

import re

from servelab.recorded import readers
from servelab.recorded.readers.consistency import REQUESTS, Identity, value_of
from servelab.recorded.readers.documents import Cells
from servelab.recorded.readers.pieces import Piece

_NUMBERS = {
    "Test Duration (s)": ("duration_s", readers.VALUE, 1),
    "Req Throughput (req/s)": ("requests_per_s", readers.VALUE, 1),
    "Output Throughput (tok/s)": ("output_tokens_per_s", readers.VALUE, 1),
    "Total Throughput (tok/s)": ("total_tokens_per_s", readers.VALUE, 1),
    "Input Throughput (tok/s)": ("input_tokens_per_s", readers.VALUE, 1),
    "Avg Latency (s)": ("e2el_ms", "mean", 1000),
    "Avg TTFT (ms)": ("ttft_ms", "mean", 1),
    "Avg TPOT (ms)": ("tpot_ms", "mean", 1),
    "Avg ITL (ms)": ("itl_ms", "mean", 1),
    "Avg Input Tokens": ("input_tokens_per_request", "mean", 1),
    "Avg Output Tokens": ("output_tokens_per_request", "mean", 1),
}
_OLD = {
    "Time taken for tests (s)": ("duration_s", readers.VALUE, 1),
    "Total requests": ("requests", readers.VALUE, 1),
    "Succeed requests": ("requests_completed", readers.VALUE, 1),
    "Failed requests": ("requests_failed", readers.VALUE, 1),
    "Throughput(average tokens/s)": ("output_tokens_per_s", readers.VALUE, 1),
    "Output token throughput (tok/s)": ("output_tokens_per_s", readers.VALUE, 1),
    "Total token throughput (tok/s)": ("total_tokens_per_s", readers.VALUE, 1),
    "Average QPS": ("requests_per_s", readers.VALUE, 1),
    "Request throughput (req/s)": ("requests_per_s", readers.VALUE, 1),
    "Average latency (s)": ("e2el_ms", "mean", 1000),
    "Average time to first token (s)": ("ttft_ms", "mean", 1000),
    "Average time per output token (s)": ("tpot_ms", "mean", 1000),
    "Average inter-token latency (s)": ("itl_ms", "mean", 1000),
    "Average input tokens per request": ("input_tokens_per_request", "mean", 1),
    "Average output tokens per request": ("output_tokens_per_request", "mean", 1),
}
_COUNTS = frozenset({"requests", "requests_completed", "requests_failed"})
_PERCENTILES = {
    "Latency (s)": ("e2el_ms", 1000),
    "TTFT (ms)": ("ttft_ms", 1),
    "TPOT (ms)": ("tpot_ms", 1),
    "ITL (ms)": ("itl_ms", 1),
}
_SPLIT = re.compile(r"(\d+) / (\d+) / (\d+)")

_RATE = Identity(
    value_of("output_tokens_per_s"),
    (value_of("requests_per_s"), ("output_tokens_per_request", "mean")),
    lambda rate, tokens: rate * tokens,
    "requests_per_s × mean of output_tokens_per_request",
)
_REQUEST_RATE = Identity(
    value_of("requests_per_s"),
    (value_of("requests_completed"), value_of("duration_s")),
    lambda completed, duration: completed / duration,
    "requests_completed / duration_s",
)


class EvalscopeReader:
    """Reads the summary, and the percentiles that follow it."""

    tool = "evalscope"
    form = "grid"

    def __init__(self, version: str, markers: frozenset[str], others: tuple[frozenset[str], ...]) -> None:
        self._version, self.markers, self.others = version, markers, others
        self._names = _NUMBERS if version.startswith(">=") else _OLD

    def knows(self, name: str) -> bool:
        """Whether it prints a row of such a name."""
        return name in self._names

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of the tables."""
        cells = Cells(piece)
        settings: dict[str, float | str | None] = {}
        unknown = []
        for name, row in cells.named(piece.grids[0]).items():
            text = row.cells[1]
            if name in self._names:
                metric, statistic, factor = self._names[name]
                cells.add((metric, statistic), text, row, 0 if metric in _COUNTS else None, factor)
            elif name == "Total / Success / Failed" and (split := _SPLIT.fullmatch(text)):
                for metric, count in zip(
                    ("requests", "requests_completed", "requests_failed"), split.groups(), strict=True
                ):
                    cells.add((metric, readers.VALUE), count, row, 0)
            elif name in ("Concurrency", "Number of concurrency"):
                settings["max_concurrency"] = cells.number(text, row, 0)[0]
            elif name == "Request Rate (req/s)":
                settings["request_rate_per_s"] = None if text == "-1" else cells.number(text, row, None)[0]
            elif not name.startswith("──"):
                unknown.append(readers.UnknownLine(row.line, f"{name}: {text}"))
        wanted = ("duration_s", "requests", "requests_completed", "requests_failed", "requests_per_s")
        for metric in wanted:
            if (metric, readers.VALUE) not in cells.saved.figures:
                raise cells.saved.error(f"the row of {metric} is missing: the table is cut off")
        for grid in piece.grids[1:]:
            self._percentiles(cells, piece, grid.header)
        return [
            cells.saved.block(
                tool=self.tool,
                version=self._version,
                definitions={
                    "tpot_ms": "(E2EL − TTFT) / (output tokens − 1); before 1.0 by chunks",
                    "output_tokens_per_s": "before 1.0 by the time of the requests in flight",
                },
                settings=settings,
                unknown=unknown,
                identities=(REQUESTS, _REQUEST_RATE, _RATE) if self._version.startswith(">=") else (REQUESTS,),
                within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
            )
        ]

    @staticmethod
    def _percentiles(cells: Cells, piece: Piece, header: tuple[str, ...]) -> None:
        for name, row in cells.named(piece.grids[1]).items():
            if name not in _PERCENTILES:
                continue
            metric, factor = _PERCENTILES[name]
            for column, text in zip(header[1:], row.cells[1:], strict=True):
                statistic = {"min": "minimum", "max": "maximum", "50%": "median"}.get(column, f"p{column.rstrip('%')}")
                if re.fullmatch(r"minimum|maximum|median|p\d\d?(?:\.\d+)?", statistic):
                    cells.add((metric, statistic), text, row, None, factor)


readers.READERS.register(
    "evalscope, console",
    EvalscopeReader(
        ">=1.0.0",
        frozenset({"Metric", "Value", "Test Duration (s)", "Total / Success / Failed"}),
        (frozenset({"Metric", "Latency (s)", "50%", "99%"}),),
    ),
)
readers.READERS.register(
    "evalscope 0.x, console",
    EvalscopeReader("<1.0.0", frozenset({"Time taken for tests (s)", "Total requests", "Succeed requests"}), ()),
)
