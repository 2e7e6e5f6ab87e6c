"""The table that AIPerf (0.13) and GenAI-Perf (0.0.16) print at the end of a run.

Source: `aiperf/exporters/console_metrics_exporter.py`; `genai_perf/export_data/console_exporter.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from servelab.recorded import readers
from servelab.recorded.readers.aiperf import DEFINITIONS, IDENTITIES, METRICS, factor_of
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.tables import Cells

_STATISTICS = {"avg": "mean", "min": "minimum", "max": "maximum", "p50": "median", "std": "std"}
_NAME = re.compile(r"(?P<name>.*?)(?: \((?P<unit>[^()]*)\))?")

_GENAI_PERF: Mapping[str, str] = {
    "Time To First Token": "ttft_ms",
    "Request Latency": "e2el_ms",
    "Inter Token Latency": "tpot_ms",
    "Output Token Throughput": "output_tokens_per_s",
    "Request Throughput": "requests_per_s",
    "Request Goodput": "goodput_per_s",
    "Request Count": "requests_completed",
}


@dataclass(frozen=True)
class PerformanceTableReader:
    """Reads the table whose rows are metrics with their units, and whose columns are statistics."""

    tool: str
    markers: frozenset[str]
    metrics: Mapping[str, str]
    """Name of a row without its unit → metric."""
    required: tuple[str, ...]
    definitions: Mapping[str, str]
    form: str = "grid"
    others: tuple[frozenset[str], ...] = ()

    def knows(self, name: str) -> bool:
        """Whether it prints a row of such a name."""
        return self._metric(name) is not None

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of the table."""
        cells = Cells(piece)
        (grid,) = piece.grids
        statistics = grid.header[1:]
        seen: set[str] = set()
        unknown = []
        for name, row in cells.named(grid, unwrap=True).items():
            metric = self._metric(name)
            if metric is None:
                unknown.append(readers.UnknownLine(row.line, f"{name}: {', '.join(row.cells[1:])}"))
                continue
            match = _NAME.fullmatch(name)
            unit = (match["unit"] if match else None) or ""
            unit = "" if unit == "Success + Error" or unit == "count" else unit
            factor = float(factor_of(cells.saved, metric, unit, name, row.line))
            seen.add(metric)
            values = dict(zip(statistics, row.cells[1:], strict=True))
            single = all(value == "N/A" for statistic, value in values.items() if statistic != "avg")
            for statistic, text in values.items():
                if single and statistic == "avg":
                    cells.add((metric, readers.VALUE), text, row, 2, factor)
                elif not single and (statistic in _STATISTICS or re.fullmatch(r"p\d{1,4}", statistic)):
                    cells.add((metric, _STATISTICS.get(statistic) or statistic), text, row, 2, factor)
        for metric in self.required:
            if metric not in seen:
                raise cells.saved.error(f"the row of {metric} is missing: the table is cut off")
        return [
            cells.saved.block(
                tool=self.tool,
                version=None,
                definitions=self.definitions,
                settings={},
                unknown=unknown,
                identities=IDENTITIES,
            )
        ]

    def _metric(self, name: str) -> str | None:
        return next(
            (metric for title, metric in self.metrics.items() if re.match(rf"{re.escape(title)}(?: \(|$)", name)), None
        )


readers.READERS.register(
    "AIPerf, console",
    PerformanceTableReader(
        tool="aiperf",
        markers=frozenset({"Metric", "avg", "min", "max", "Request Count (requests)"}),
        metrics=dict(METRICS.values()),
        required=("requests_completed", "requests_per_s", "e2el_ms"),
        definitions=DEFINITIONS,
    ),
)

readers.READERS.register(
    "GenAI-Perf, console",
    PerformanceTableReader(
        tool="genai-perf",
        markers=frozenset({"Statistic", "avg", "min", "max", "p99"}),
        metrics=_GENAI_PERF,
        required=("requests_per_s", "e2el_ms"),
        definitions={
            "tpot_ms": "GenAI-Perf's inter_token_latency: (E2EL − TTFT) / (output tokens − 1)",
            "output_tokens_per_s": "over the time from the first request to the last response",
        },
    ),
)
