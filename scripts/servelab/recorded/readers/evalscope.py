"""The tables that `evalscope perf` prints: the summary of 1.x, and its percentiles; the summary of 0.1x is read too.

Source: `evalscope/perf/utils/perf_models.py` of 1.14.1, `to_table`; 0.1x from published output.
"""

from __future__ import annotations

from collections.abc import Iterator

from servelab.recorded.readers.consistency import MEAN_TOKENS_RATE, REQUEST_RATE, REQUESTS
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import READERS, Entry, FigureForm, Reader, ToolRun, statistic_of

_SPLIT = "Total / Success / Failed"
_REQUIRED = ("duration_s", "requests", "requests_completed", "requests_failed", "requests_per_s")
_DEFINITIONS = {
    "tpot_ms": "(E2EL − TTFT) / (output tokens − 1); before 1.0 by chunks",
    "output_tokens_per_s": "before 1.0 by the time of the requests in flight",
}


def _mean(metric: str, factor: float = 1) -> FigureForm:
    return FigureForm(metric, None, factor, "mean")


def _runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The summary, and the percentiles that may follow it."""
    entries = []
    summary, *percentiles = piece.tables
    for line, (name, text, *_) in ((row.line, row.cells) for row in summary.rows):
        parts = text.split(" / ")
        if name == _SPLIT and len(parts) == 3:
            entries += [Entry(each, part, line) for each, part in zip(_SPLIT.split(" / "), parts, strict=True)]
        elif not name.startswith("──"):
            entries.append(Entry(name, text or "N/A", line, raw=f"{name}: {text}"))
    for table in percentiles:
        columns = [statistic_of(column) for column in table.header]
        for row in (row for row in table.rows if row.cells[0] in reader.families):
            named = zip(columns, row.cells, strict=True)
            entries += [Entry(row.cells[0], text, row.line, column) for column, text in named if column]
    yield ToolRun(entries)


READERS.register(
    "evalscope, console",
    Reader(
        tool="evalscope",
        form="grid",
        markers=frozenset({"Metric", "Value", "Test Duration (s)", _SPLIT}),
        following=(frozenset({"Metric", "Latency (s)", "50%", "99%"}),),
        figures={
            "Test Duration (s)": FigureForm("duration_s", None),
            "Total": FigureForm("requests", 0),
            "Success": FigureForm("requests_completed", 0),
            "Failed": FigureForm("requests_failed", 0),
            "Req Throughput (req/s)": FigureForm("requests_per_s", None),
            "Output Throughput (tok/s)": FigureForm("output_tokens_per_s", None),
            "Total Throughput (tok/s)": FigureForm("total_tokens_per_s", None),
            "Input Throughput (tok/s)": FigureForm("input_tokens_per_s", None),
            "Avg Latency (s)": _mean("e2el_ms", 1000),
            "Avg TTFT (ms)": _mean("ttft_ms"),
            "Avg TPOT (ms)": _mean("tpot_ms"),
            "Avg ITL (ms)": _mean("itl_ms"),
            "Avg Input Tokens": _mean("input_tokens_per_request"),
            "Avg Output Tokens": _mean("output_tokens_per_request"),
        },
        families={
            "Latency (s)": FigureForm("e2el_ms", None, 1000),
            "TTFT (ms)": FigureForm("ttft_ms", None),
            "TPOT (ms)": FigureForm("tpot_ms", None),
            "ITL (ms)": FigureForm("itl_ms", None),
        },
        settings={"Concurrency": "max_concurrency", "Request Rate (req/s)": "request_rate_per_s"},
        required=_REQUIRED,
        rules=(REQUESTS, REQUEST_RATE, MEAN_TOKENS_RATE),
        within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
        definitions=_DEFINITIONS,
        version=">=1.0.0",
        runs=_runs,
    ),
)
READERS.register(
    "evalscope 0.x, console",
    Reader(
        tool="evalscope",
        form="grid",
        markers=frozenset({"Time taken for tests (s)", "Total requests", "Succeed requests"}),
        figures={
            "Time taken for tests (s)": FigureForm("duration_s", None),
            "Total requests": FigureForm("requests", 0),
            "Succeed requests": FigureForm("requests_completed", 0),
            "Failed requests": FigureForm("requests_failed", 0),
            "Throughput(average tokens/s)": FigureForm("output_tokens_per_s", None),
            "Output token throughput (tok/s)": FigureForm("output_tokens_per_s", None),
            "Total token throughput (tok/s)": FigureForm("total_tokens_per_s", None),
            "Average QPS": FigureForm("requests_per_s", None),
            "Request throughput (req/s)": FigureForm("requests_per_s", None),
            "Average latency (s)": _mean("e2el_ms", 1000),
            "Average time to first token (s)": _mean("ttft_ms", 1000),
            "Average time per output token (s)": _mean("tpot_ms", 1000),
            "Average inter-token latency (s)": _mean("itl_ms", 1000),
            "Average input tokens per request": _mean("input_tokens_per_request"),
            "Average output tokens per request": _mean("output_tokens_per_request"),
        },
        settings={"Number of concurrency": "max_concurrency"},
        required=_REQUIRED,
        rules=(REQUESTS,),
        within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
        definitions=_DEFINITIONS,
        version="<1.0.0",
        runs=_runs,
    ),
)
