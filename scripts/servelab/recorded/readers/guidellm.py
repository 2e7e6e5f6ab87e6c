"""guidellm's saved JSON: a document with one block per benchmark.

Source: `guidellm/schemas/base/request_stats.py` and `statistics.py`, `benchmark/schemas/metrics.py` of 0.8.1; of 0.3.0
`benchmark/benchmark.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from servelab.recorded import readers
from servelab.recorded.readers.consistency import LOOSE_REQUESTS, TOKEN_RATIO, Identity, value_of
from servelab.recorded.readers.documents import Cells, Saved, text_or_none, unknown_entry
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import DrawnTable, GridRow

_RATES = "up to 0.8.0 over the time from the first to the last token, from 0.8.1 over the measured time"

DEFINITIONS = {
    "normalized_e2el_ms": "up to the last token, weighted by output tokens; percentiles without interpolation",
    "tpot_ms": "weighted by output tokens − 1; percentiles without interpolation",
    "ttft_ms": "percentiles without interpolation",
    "e2el_ms": "percentiles without interpolation",
    "input_tokens_per_s": _RATES,
    "output_tokens_per_s": _RATES,
    "total_tokens_per_s": _RATES,
    "peak_output_tokens_per_s": "largest rate between two events, however close they lie",
    "peak_concurrency": "of successful requests",
    "concurrency": "of successful requests, over the time in which any of them was in flight",
}

_LATENCIES = {
    "time_to_first_token_ms": ("ttft_ms", 1),
    "inter_token_latency_ms": ("tpot_ms", 1),
    "time_per_output_token_ms": ("normalized_e2el_ms", 1),
    "request_latency": ("e2el_ms", 1000),
}
"""Its name → ours, and the factor from its unit."""

_NUMBERS = {
    "requests_per_s": ("requests_per_second", "mean"),
    "input_tokens_per_s": ("prompt_tokens_per_second", "mean"),
    "output_tokens_per_s": ("output_tokens_per_second", "mean"),
    "total_tokens_per_s": ("tokens_per_second", "mean"),
    "peak_output_tokens_per_s": ("output_tokens_per_second", "max"),
    "concurrency": ("request_concurrency", "mean"),
    "peak_concurrency": ("request_concurrency", "max"),
    "input_tokens": ("prompt_token_count", "total_sum"),
    "output_tokens": ("output_token_count", "total_sum"),
}

_STATISTICS = {"mean": "mean", "std_dev": "std", "min": "minimum", "median": "median", "max": "maximum"}

_PERCENTILE = re.compile(r"p\d{2,6}")

_REQUESTS = Identity(
    value_of("requests"),
    tuple(value_of(name) for name in ("requests_completed", "requests_failed", "requests_incomplete")),
    lambda completed, failed, incomplete: completed + failed + incomplete,
    "requests_completed + requests_failed + requests_incomplete",
)


class GuidellmReader:
    """Reads `benchmarks.json`."""

    tool = "guidellm"
    form = "json"
    markers = frozenset({"benchmarks"})

    def knows(self, name: str) -> bool:
        """Whether it writes such a key at the top of a document."""
        return name == "benchmarks"

    def read(self, piece: Piece) -> list[readers.Block]:
        """A block for each benchmark."""
        benchmarks = piece.document["benchmarks"]
        if not isinstance(benchmarks, list) or not benchmarks:
            raise Saved(piece).error("`benchmarks` holds none")
        return [self._block(piece, number, benchmark) for number, benchmark in enumerate(benchmarks)]

    def _block(self, piece: Piece, number: int, benchmark: Any) -> readers.Block:
        saved = Saved(piece)
        place = f"benchmarks[{number}]"
        metrics = _object(saved, benchmark, "metrics", place)
        parent = benchmark if "request_totals" not in metrics else metrics  # up to 0.3 beside the metrics
        totals = _object(saved, parent, "request_totals", f"{place}.metrics")
        for status, metric in (
            ("total", "requests"),
            ("successful", "requests_completed"),
            ("errored", "requests_failed"),
            ("incomplete", "requests_incomplete"),
        ):
            saved.add((metric, readers.VALUE), totals.get(status), f"request_totals.{status}")
        saved.add(("duration_s", readers.VALUE), benchmark.get("duration"), f"{place}.duration")
        for metric, (name, statistic) in _NUMBERS.items():
            if name == "prompt_tokens_per_second" and name not in metrics:
                continue  # up to 0.3
            figures = _successful(saved, metrics, name, place)
            saved.add((metric, readers.VALUE), figures.get(statistic), f"{name}.successful.{statistic}")
        for name, (metric, factor) in _LATENCIES.items():
            _add_distribution(saved, metric, factor, _successful(saved, metrics, name, place), name)
        strategy = (benchmark.get("config") or benchmark.get("args") or {}).get("strategy") or {}
        known = {"request_totals", *_LATENCIES, *(name for name, _ in _NUMBERS.values())}
        return saved.block(
            tool=self.tool,
            version=text_or_none((piece.document.get("metadata") or {}).get("guidellm_version")),
            definitions=DEFINITIONS,
            settings={
                "benchmark": number,
                "strategy": strategy.get("type_"),
                "max_concurrency": strategy.get("max_concurrency"),
                "request_rate_per_s": strategy.get("rate"),
            },
            unknown=[
                unknown_entry(piece, key, value.get("successful"))
                for key, value in metrics.items()
                if key not in known and isinstance(value, dict) and "successful" in value
            ],
            identities=(_REQUESTS, LOOSE_REQUESTS, TOKEN_RATIO),
        )


def _object(saved: Saved, parent: Any, key: str, place: str) -> Mapping[str, Any]:
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, dict):
        raise saved.error(f"`{place}.{key}` is missing")
    return value


def _successful(saved: Saved, metrics: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    """Statistics of a metric over successful requests; empty if there were none."""
    figures = _object(saved, _object(saved, metrics, name, f"{place}.metrics"), "successful", f"{place}.metrics.{name}")
    return figures if figures.get("count") != 0 else {}


def _add_distribution(saved: Saved, metric: str, factor: int, figures: Mapping[str, Any], name: str) -> None:
    named = {_STATISTICS[key]: figures.get(key) for key in _STATISTICS}
    percentiles = figures.get("percentiles") or {}
    for key, value in percentiles.items():
        if not _PERCENTILE.fullmatch(key):
            raise saved.error(f"`{name}.percentiles` has `{key}`, which is no percentile")
        if key != "p50":
            named[_percentile(key)] = value
    for statistic, value in named.items():
        if isinstance(value, float) and factor != 1:
            value = float(Decimal(repr(value)) * factor)
        saved.add((metric, statistic), value, f"{name}.{statistic}")


def _percentile(key: str) -> str:
    """`p001` is the 0.1th, `p05` the 5th, `p999` the 99.9th percentile."""
    digits = key.removeprefix("p")
    whole = digits[:2].lstrip("0") or "0"
    return f"p{whole}.{digits[2:]}" if digits[2:] else f"p{whole}"


readers.READERS.register("guidellm, JSON", GuidellmReader())


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
_GUIDELLM_CONSOLE_LATENCIES = {
    ("Request Latency", "Sec"): ("e2el_ms", 1000),
    ("TTFT", "ms"): ("ttft_ms", 1),
    ("ITL", "ms"): ("tpot_ms", 1),
    ("TPOT", "ms"): ("normalized_e2el_ms", 1),
}
_GUIDELLM_CONSOLE_STATISTICS = {"Mean": "mean", "Mdn": "median", "p95": "p95"}
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
                elif heads[:2] in _GUIDELLM_CONSOLE_LATENCIES and heads[2] in _GUIDELLM_CONSOLE_STATISTICS:
                    metric, factor = _GUIDELLM_CONSOLE_LATENCIES[heads[:2]]
                    noted = _NOTED.fullmatch(text)
                    cells.add(
                        (metric, _GUIDELLM_CONSOLE_STATISTICS[heads[2]]),
                        noted["number"] if noted else text,
                        row,
                        1,
                        factor,
                    )
        read = {metric for metric, _ in cells.saved.figures}
        wanted = {metric for metric, _ in (_RUN | _THROUGHPUT).values()} | {
            metric for metric, _ in _GUIDELLM_CONSOLE_LATENCIES.values()
        }
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


def _heads(grid: DrawnTable) -> list[tuple[str, str, str]]:
    """The three heads of each column; an empty one is that of the column before, as the tool joins equal ones."""
    heads = [list(row.cells) for row in grid.groups[0]]
    if len(heads) != 3:
        return []
    for row in heads:
        for column in range(1, len(row)):
            row[column] = row[column] or row[column - 1]
    return [(heads[0][column], heads[1][column], heads[2][column]) for column in range(len(heads[0]))]


readers.READERS.register("guidellm, console", GuidellmConsoleReader())
