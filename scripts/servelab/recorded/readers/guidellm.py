"""guidellm's saved JSON, a document with one block per benchmark, and its console; GPUStack's block with its figures.

Source: `guidellm/schemas/base/request_stats.py` and `statistics.py`, `benchmark/schemas/metrics.py` of 0.8.1; of 0.3.0
`benchmark/benchmark.py`. GPUStack prints guidellm's figures under the labels of `vllm bench serve`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from servelab.recorded.readers.consistency import LOOSE_REQUESTS, TOKEN_RATIO, Rule
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import (
    READERS,
    Entry,
    FigureForm,
    Reader,
    ToolRun,
    statistic_of,
    unknown_entry,
)
from servelab.recorded.readers.tables import DrawnTable

_RATES = "up to 0.8.0 over the time from the first to the last token, from 0.8.1 over the measured time"
_OF_ALL = "of all requests, failed and incomplete ones included"
_DEFINITIONS = {
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
    "time_to_first_token_ms": FigureForm("ttft_ms"),
    "inter_token_latency_ms": FigureForm("tpot_ms"),
    "time_per_output_token_ms": FigureForm("normalized_e2el_ms"),
    "request_latency": FigureForm("e2el_ms", factor=1000),
}
_NUMBERS = {
    "requests_per_second.mean": FigureForm("requests_per_s"),
    "prompt_tokens_per_second.mean": FigureForm("input_tokens_per_s"),
    "output_tokens_per_second.mean": FigureForm("output_tokens_per_s"),
    "tokens_per_second.mean": FigureForm("total_tokens_per_s"),
    "output_tokens_per_second.max": FigureForm("peak_output_tokens_per_s"),
    "request_concurrency.mean": FigureForm("concurrency"),
    "request_concurrency.max": FigureForm("peak_concurrency"),
    "prompt_token_count.total_sum": FigureForm("input_tokens"),
    "output_token_count.total_sum": FigureForm("output_tokens"),
}
"""Its name and statistic of the successful requests → figure."""
_TOTALS = {
    "total": FigureForm("requests"),
    "successful": FigureForm("requests_completed"),
    "errored": FigureForm("requests_failed"),
    "incomplete": FigureForm("requests_incomplete"),
}
_REQUESTS = Rule(
    "requests",
    "requests_completed + requests_failed + requests_incomplete",
    lambda of: of["requests_completed"] + of["requests_failed"] + of["requests_incomplete"],
)


def _json_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each benchmark."""
    benchmarks = piece.document["benchmarks"]
    if not isinstance(benchmarks, list) or not benchmarks:
        raise piece.error("`benchmarks` holds none")
    version = (piece.document.get("metadata") or {}).get("guidellm_version")
    is_text = isinstance(version, str) and len(version) < 100 and version.isprintable()
    for number, benchmark in enumerate(benchmarks):
        strategy = (benchmark.get("config") or benchmark.get("args") or {}).get("strategy") or {}
        settings = {
            "benchmark": number,
            "strategy": strategy.get("type_"),
            "max_concurrency": strategy.get("max_concurrency"),
            "request_rate_per_s": strategy.get("rate"),
        }
        yield ToolRun(_benchmark(piece, benchmark), settings, version if is_text else None)


def _benchmark(piece: Piece, benchmark: Any) -> Iterator[Entry]:
    line, metrics = piece.first_line, _object(piece, benchmark, "metrics")
    # up to 0.3 the totals are beside the metrics
    totals = _object(piece, benchmark if "request_totals" not in metrics else metrics, "request_totals")
    yield from (Entry(name, totals.get(name), line) for name in _TOTALS)
    yield Entry("duration", benchmark.get("duration"), line)
    for name in _NUMBERS:
        metric, _, statistic = name.partition(".")
        if metric in metrics or metric != "prompt_tokens_per_second":  # which 0.3 lacks
            yield Entry(name, _successful(piece, metrics, metric).get(statistic), line)
    for name in _LATENCIES:
        figures = _successful(piece, metrics, name)
        for key in ("mean", "std_dev", "min", "median", "max"):
            yield Entry(name, figures.get(key), line, statistic_of(key))
        percentiles = figures.get("percentiles") or {}
        yield from (
            Entry(name, each, line, _percentile(piece, key)) for key, each in percentiles.items() if key != "p50"
        )
    known = {"request_totals", *_LATENCIES, *(name.partition(".")[0] for name in _NUMBERS)}
    for key, value in metrics.items():
        if key not in known and isinstance(value, dict) and "successful" in value:
            yield unknown_entry(piece, key, value["successful"])


def _object(piece: Piece, parent: Any, key: str) -> Mapping[str, Any]:
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, dict):
        raise piece.error(f"`{key}` of a benchmark is missing")
    return value


def _successful(piece: Piece, metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Statistics of a metric over successful requests; empty if there were none."""
    figures = _object(piece, _object(piece, metrics, name), "successful")
    return figures if figures.get("count") != 0 else {}


def _percentile(piece: Piece, key: str) -> str:
    """`p001` is the 0.1th, `p05` the 5th, `p999` the 99.9th percentile."""
    if not re.fullmatch(r"p\d{2,6}", key):
        raise piece.error(f"`{key}` is no percentile")
    whole = key[1:3].lstrip("0") or "0"
    return f"p{whole}.{key[3:]}" if key[3:] else f"p{whole}"


READERS.register(
    "guidellm, JSON",
    Reader(
        tool="guidellm",
        form="json",
        markers=frozenset({"benchmarks"}),
        figures={**_TOTALS, **_NUMBERS, "duration": FigureForm("duration_s")},
        families=_LATENCIES,
        required=(),
        rules=(_REQUESTS, LOOSE_REQUESTS, TOKEN_RATIO),
        definitions=_DEFINITIONS,
        runs=_json_runs,
    ),
)

_COLUMNS = {
    "Timings, Dur, Sec": FigureForm("duration_s", 1),
    "Requests, Comp, Tot": FigureForm("requests_completed", 0),
    "Requests, Inc, Tot": FigureForm("requests_incomplete", 0),
    "Requests, Err, Tot": FigureForm("requests_failed", 0),
    "Input Tokens, Comp, Tot": FigureForm("input_tokens", 1),
    "Output Tokens, Comp, Tot": FigureForm("output_tokens", 1),
    "Requests, Concurrency, Mean": FigureForm("concurrency", 1),
    "Requests, Per Sec, Mean": FigureForm("requests_per_s", 1),
    "Input Tokens, Per Sec, Mean": FigureForm("input_tokens_per_s", 1),
    "Output Tokens, Per Sec, Mean": FigureForm("output_tokens_per_s", 1),
    "Total Tokens, Per Sec, Mean": FigureForm("total_tokens_per_s", 1),
}
"""Heads of a column → figure."""
_LATENCY_COLUMNS = {
    "Request Latency, Sec": FigureForm("e2el_ms", 1, 1000),
    "TTFT, ms": FigureForm("ttft_ms", 1),
    "ITL, ms": FigureForm("tpot_ms", 1),
    "TPOT, ms": FigureForm("normalized_e2el_ms", 1),
}
_NOTED = re.compile(r"([\d.,]+)(?: ± [\d.,]+|\*)?")
"""A number, perhaps with half its confidence interval, or marked as without one."""


def _console_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A run for each row of the tables of runs, latencies and throughputs."""
    if len(piece.tables) != 3:
        raise piece.error(f"{len(piece.tables)} of the three tables with figures are there: the output is cut off")
    heads = [_heads(table) for table in piece.tables]
    for number, rows in enumerate(zip_longest(*(table.rows for table in piece.tables))):
        if None in rows or len({row.cells[0] for row in rows}) > 1:
            raise piece.error("its tables have other benchmarks")
        entries = []
        for columns, row in zip(heads, rows, strict=True):
            for name, text in zip(columns, row.cells, strict=True):
                metric, _, statistic = name.rpartition(", ")
                if name in _COLUMNS:
                    entries.append(Entry(name, text or "N/A", row.line))
                elif metric in _LATENCY_COLUMNS and (noted := _NOTED.fullmatch(text)):
                    entries.append(Entry(metric, noted[1], row.line, statistic_of(statistic)))
        yield ToolRun(entries, {"benchmark": number, "strategy": rows[0].cells[0]})


def _heads(table: DrawnTable) -> list[str]:
    """The three heads of each column; an empty one is that of the column before, as the tool joins equal ones."""
    heads = [list(row.cells) for row in table.groups[0]]
    for row in heads:
        for column in range(1, len(row)):
            row[column] = row[column] or row[column - 1]
    return [", ".join(column) for column in zip(*heads, strict=True)]


_READ = (*_COLUMNS.values(), *_LATENCY_COLUMNS.values())
READERS.register(
    "guidellm, console",
    Reader(
        tool="guidellm",
        form="grid",
        markers=frozenset({"Benchmark", "Strategy", "Timings", "Start", "End", "Dur"}),
        following=(
            frozenset({"Benchmark", "Strategy", "Request Latency", "TTFT", "ITL", "TPOT"}),
            frozenset({"Benchmark", "Strategy", "Concurrency", "Per Sec", "Total Tokens"}),
        ),
        figures=_COLUMNS,
        families=_LATENCY_COLUMNS,
        required=tuple(form.metric for form in _READ),
        definitions={
            **_DEFINITIONS,
            **dict.fromkeys(
                ("input_tokens_per_s", "output_tokens_per_s", "total_tokens_per_s"), f"{_OF_ALL}; {_RATES}"
            ),
            "requests_per_s": _OF_ALL,
            "concurrency": f"{_OF_ALL}; {_DEFINITIONS['concurrency']}",
        },
        version=">=0.8.0",
        runs=_console_runs,
    ),
)

READERS.register(
    "GPUStack, console",
    Reader(
        tool="gpustack",
        form="console",
        markers=frozenset({"Successful requests", "Mean Latency(s)"}),
        figures={
            "Successful requests": FigureForm("requests_completed", 0),
            "Benchmark duration (s)": FigureForm("duration_s"),
            "Total input tokens": FigureForm("input_tokens", 0),
            "Total generated tokens": FigureForm("output_tokens", 0),
            "Request throughput (req/s)": FigureForm("requests_per_s"),
            "Output token throughput (tok/s)": FigureForm("output_tokens_per_s"),
            "Peak output token throughput (tok/s)": FigureForm("peak_output_tokens_per_s"),
            "Peak concurrent requests": FigureForm("peak_concurrency"),
            "Total Token throughput (tok/s)": FigureForm("total_tokens_per_s"),
        },
        families={
            "Latency(s)": FigureForm("e2el_ms", factor=1000),
            "TTFT (ms)": FigureForm("ttft_ms"),
            "TPOT (ms)": FigureForm("tpot_ms"),
            "ITL (ms)": FigureForm("itl_ms"),
        },
        percentiles=frozenset({"p95", "p99"}),
        settings={"Maximum request concurrency": "max_concurrency"},
        required=(
            "requests_completed",
            "duration_s",
            "input_tokens",
            "output_tokens",
            "requests_per_s",
            "output_tokens_per_s",
            "total_tokens_per_s",
        ),
        rules=(LOOSE_REQUESTS, TOKEN_RATIO),
        definitions={
            "tpot_ms": "(last token − request start) / output tokens, TTFT included, weighted by output tokens",
            "itl_ms": "(last − first token) / (output tokens − 1), one value a request, weighted: Servelab's tpot_ms",
            "output_tokens_per_s": "over the time from the first to the last token, not over duration_s",
            "total_tokens_per_s": "over the time from the first to the last token, not over duration_s",
            "input_tokens": "mean of a request × successful requests",
            "output_tokens": "mean of a request × successful requests",
            "peak_output_tokens_per_s": "largest rate between two events, however close they lie",
        },
    ),
)
