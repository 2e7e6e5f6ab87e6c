"""AIPerf's `profile_export_aiperf.json` and `.csv`.

Source: `aiperf/exporters/metrics_csv_exporter.py`, `metrics_json_exporter.py` and `metrics/types/` of 0.13.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from servelab.recorded import readers
from servelab.recorded.readers.consistency import REQUESTS, same_window
from servelab.recorded.readers.documents import Cells, Saved, text_or_none, unknown_entry
from servelab.recorded.readers.pieces import Piece

DEFINITIONS = {
    "tpot_ms": "AIPerf's inter_token_latency: (E2EL − TTFT) / (output tokens − tokens of the first event)",
    "duration_s": "from the first request to the last response",
    **dict.fromkeys(
        ("requests_per_s", "goodput_per_s", "input_tokens_per_s", "output_tokens_per_s", "total_tokens_per_s"),
        "over the profiling phase, which is a little longer than duration_s",
    ),
}

IDENTITIES = (
    REQUESTS,
    same_window("input_tokens_per_s", "input_tokens"),
    same_window("output_tokens_per_s", "output_tokens"),
    same_window("total_tokens_per_s", "input_tokens", "output_tokens"),
)

METRICS: Mapping[str, tuple[str, str]] = {
    "request_count": ("Request Count", "requests_completed"),
    "error_request_count": ("Error Request Count", "requests_failed"),
    "completed_request_count": ("Completed Requests (Success + Error)", "requests"),
    "benchmark_duration": ("Benchmark Duration", "duration_s"),
    "total_isl": ("Total Input Sequence Length", "input_tokens"),
    "total_osl": ("Total Output Sequence Length", "output_tokens"),
    "request_throughput": ("Request Throughput", "requests_per_s"),
    "goodput": ("Goodput", "goodput_per_s"),
    "input_token_throughput": ("Input Token Throughput", "input_tokens_per_s"),
    "output_token_throughput": ("Output Token Throughput", "output_tokens_per_s"),
    "total_token_throughput": ("Total Token Throughput", "total_tokens_per_s"),
    "effective_concurrency": ("Effective Concurrency", "concurrency"),
    "request_latency": ("Request Latency", "e2el_ms"),
    "time_to_first_token": ("Time to First Token", "ttft_ms"),
    "inter_token_latency": ("Inter Token Latency", "tpot_ms"),
    "inter_chunk_latency": ("Inter Chunk Latency", "itl_ms"),
}
"""Tag in the JSON → name in the CSV, and our metric."""

_FACTORS: Mapping[str, Mapping[str, Decimal]] = {
    "_ms": {"ns": Decimal("1e-6"), "us": Decimal("1e-3"), "ms": Decimal(1), "sec": Decimal(1000)},
    "_per_s": {"requests/sec": Decimal(1), "tokens/sec": Decimal(1), "per sec": Decimal(1)},
    "_s": {"ns": Decimal("1e-9"), "us": Decimal("1e-6"), "ms": Decimal("1e-3"), "sec": Decimal(1)},
    "": {"requests": Decimal(1), "tokens": Decimal(1), "": Decimal(1)},
}
"""Unit of the metric, by the end of its name → AIPerf's unit → factor."""

_STATISTICS = {"avg": "mean", "min": "minimum", "max": "maximum", "p50": "median", "std": "std"}
_REQUIRED = ("request_count", "benchmark_duration", "request_throughput")
_COUNT = re.compile(r"\d+(?:\.\d\d)?")
_MEASURED = re.compile(r"\d+\.\d\d")
"""A measured value; one with fewer digits was cut off."""
_NAME = re.compile(r"(?P<name>.*?)(?: \((?P<unit>[^()]*)\))?")


def factor_of(saved: Saved, metric: str, unit: str, name: str, line: int | None = None) -> Decimal:
    """The factor from AIPerf's unit to the metric's; `ReadError` for an unknown unit."""
    factors = next(factors for ending, factors in _FACTORS.items() if metric.endswith(ending))
    if unit not in factors:
        raise saved.error(f"`{name}` is in `{unit}`; known: {', '.join(sorted(factors))}", line)
    return factors[unit]


def _statistics(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Our statistic and its key among the values; a metric with only an average is one number."""
    if not any(key in values for key in ("p50", "min")):
        yield readers.VALUE, "avg"
        return
    for key in values:
        if key in _STATISTICS or re.fullmatch(r"p\d{1,4}", key):
            yield _STATISTICS.get(key, key), key


class AIPerfJsonReader:
    """Reads the JSON export."""

    tool = "aiperf"
    form = "json"
    markers = frozenset({"aiperf_version", "request_count"})

    def knows(self, name: str) -> bool:
        """Whether it writes a figure under such a key."""
        return name in METRICS

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of the profiling phase."""
        saved = Saved(piece)
        document = piece.document
        for key in _REQUIRED:
            if not isinstance(document.get(key), dict):
                raise saved.error(f"`{key}` is missing")
        unknown = []
        for key, values in document.items():
            if key not in METRICS:
                if isinstance(values, dict) and "unit" in values:
                    unknown.append(unknown_entry(piece, key, values))
            elif isinstance(values, dict):
                metric = METRICS[key][1]
                factor = factor_of(saved, metric, str(values.get("unit")), key)
                for statistic, name in _statistics(values):
                    value = values.get(name)
                    if isinstance(value, int | float) and factor != 1:
                        value = float(Decimal(repr(value)) * factor)
                    saved.add((metric, statistic), value, f"{key}.{name}")
        if document.get("was_cancelled") or document.get("is_complete") is False:
            saved.warnings.append(f"the run did not complete: {document.get('incomplete_reason') or 'cancelled'}")
        block = saved.block(
            tool=self.tool,
            version=text_or_none(document.get("aiperf_version")),
            definitions=DEFINITIONS,
            settings={"command": _part(document, "run_info").get("cli_command"), **_load(document)},
            unknown=unknown,
            identities=IDENTITIES,
        )
        return [block]


def _load(document: Mapping[str, Any]) -> dict[str, float]:
    """The load of a run: its point of a sweep, or else what its configuration has of the phase that counts.

    Up to 0.2 a configuration had `loadgen`, since then `phases`.
    """
    config, point = _part(document, "input_config"), _part(_part(document, "run_info"), "variation_values")
    phases = config.get("phases")
    counted = [each for each in phases if isinstance(each, dict)] if isinstance(phases, list) else []
    given = {
        **_part(config, "loadgen"),
        **next((each for each in counted if each.get("name") == "profiling"), {}),
        **{str(path).rpartition(".")[2]: value for path, value in point.items()},
    }
    names = {"concurrency": "max_concurrency", "request_rate": "request_rate_per_s", "rate": "request_rate_per_s"}
    return {ours: given[its] for its, ours in names.items() if isinstance(given.get(its), int | float)}


def _part(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object in a document; empty if there is none."""
    found = content.get(key)
    return found if isinstance(found, dict) else {}


class AIPerfCsvReader:
    """Reads the CSV export: a table of distributions, one of single values, and perhaps one of accelerators."""

    tool = "aiperf"
    form = "csv"
    markers = frozenset({"Metric", "Request Count"})

    def knows(self, name: str) -> bool:
        """Whether it writes a figure under such a name."""
        return _metric(name) is not None

    def read(self, piece: Piece) -> list[readers.Block]:
        """The block of the profiling phase."""
        saved = Saved(piece)
        header: list[str] = []
        unknown: list[readers.UnknownLine] = []
        seen: dict[str, int] = {}
        for line, row in enumerate(piece.table, start=1):
            if not row:
                continue
            if row[0] in ("Metric", "Endpoint"):
                header = row
                continue
            if len(row) != len(header):
                raise saved.error(f"{len(row)} columns where the table has {len(header)}: the row is cut off", line)
            metric = _metric(row[0]) if header[0] == "Metric" else None
            if metric is None:
                unknown.append(readers.UnknownLine(line, f"{row[0]}: {','.join(row[1:])}"))
                continue
            if metric in seen:
                raise saved.error(f"`{row[0]}` occurs twice, first in line {seen[metric]}", line)
            seen[metric] = line
            self._add(saved, metric, row, header, line)
        for key in _REQUIRED:
            if METRICS[key][1] not in seen:
                raise saved.error(f"the row `{METRICS[key][0]}` is missing: the table is cut off")
        block = saved.block(
            tool=self.tool,
            version=None,
            definitions=DEFINITIONS,
            settings={},
            unknown=unknown,
            identities=IDENTITIES,
        )
        return [block]

    def _add(self, saved: Saved, metric: str, row: list[str], header: list[str], line: int) -> None:
        match = _NAME.fullmatch(row[0])
        unit = (match["unit"] if match else None) or ""
        factor = factor_of(saved, metric, "" if unit == "Success + Error" else unit, row[0], line)
        values = {
            "avg" if name == "Value" else name: cell for name, cell in zip(header[1:], row[1:], strict=True) if cell
        }
        for statistic, name in _statistics(values):
            cell = values.get(name, "")
            if not (_MEASURED if metric.endswith(("_ms", "_s")) else _COUNT).fullmatch(cell):
                raise saved.error(f"`{row[0]}` has `{cell}` for {name}, not a number as AIPerf writes it", line)
            half = 0.005 * float(factor) if "." in cell else 0.0
            saved.add((metric, statistic), float(Decimal(cell) * factor), row[0], half, line)


def _metric(name: str) -> str | None:
    """Our metric of a row's name, which has its unit in brackets."""
    return next((metric for title, metric in METRICS.values() if name == title or name.startswith(f"{title} (")), None)


readers.READERS.register("AIPerf, JSON", AIPerfJsonReader())
readers.READERS.register("AIPerf, CSV", AIPerfCsvReader())


_AIPERF_CONSOLE_STATISTICS = {"avg": "mean", "min": "minimum", "max": "maximum", "p50": "median", "std": "std"}
_AIPERF_CONSOLE_NAME = re.compile(r"(?P<name>.*?)(?: \((?P<unit>[^()]*)\))?")

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
            match = _AIPERF_CONSOLE_NAME.fullmatch(name)
            unit = (match["unit"] if match else None) or ""
            unit = "" if unit == "Success + Error" or unit == "count" else unit
            factor = float(factor_of(cells.saved, metric, unit, name, row.line))
            seen.add(metric)
            values = dict(zip(statistics, row.cells[1:], strict=True))
            single = all(value == "N/A" for statistic, value in values.items() if statistic != "avg")
            for statistic, text in values.items():
                if single and statistic == "avg":
                    cells.add((metric, readers.VALUE), text, row, 2, factor)
                elif not single and (statistic in _AIPERF_CONSOLE_STATISTICS or re.fullmatch(r"p\d{1,4}", statistic)):
                    cells.add((metric, _AIPERF_CONSOLE_STATISTICS.get(statistic) or statistic), text, row, 2, factor)
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
