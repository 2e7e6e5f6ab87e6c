"""The report of `trtllm-bench throughput` and `latency`, releases 0.17 to 1.2.

Source: `tensorrt_llm/bench/dataclasses/reporting.py`, `report_statistics`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from servelab.recorded.readers.consistency import MEAN_TOKENS_RATE, REQUEST_RATE, Rule, ValueRange
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import READERS, Entry, FigureForm, Reader, ToolRun, statistic_of

_FIGURES = {
    "REQUEST DETAILS: Number of requests": FigureForm("requests_completed", 0),
    "REQUEST DETAILS: Number of concurrent requests": FigureForm("concurrency", 4),
    "REQUEST DETAILS: Average Input Length (tokens)": FigureForm("input_tokens_per_request", 4, statistic="mean"),
    "REQUEST DETAILS: Average Output Length (tokens)": FigureForm("output_tokens_per_request", 4, statistic="mean"),
    "PERFORMANCE OVERVIEW: Request Throughput (req/sec)": FigureForm("requests_per_s", 4),
    "PERFORMANCE OVERVIEW: Total Output Throughput (tokens/sec)": FigureForm("output_tokens_per_s", 4),
    "PERFORMANCE OVERVIEW: Total Token Throughput (tokens/sec)": FigureForm("total_tokens_per_s", 4),
    "PERFORMANCE OVERVIEW: Total Latency (ms)": FigureForm("duration_s", 4, 0.001),
    "PERFORMANCE OVERVIEW: Average request latency (ms)": FigureForm("e2el_ms", 4, statistic="mean"),
    "PERFORMANCE OVERVIEW: Average time-to-first-token [TTFT] (ms)": FigureForm("ttft_ms", 4, statistic="mean"),
    "PERFORMANCE OVERVIEW: Average time-per-output-token [TPOT] (ms)": FigureForm("tpot_ms", 4, statistic="mean"),
}
_STATISTIC = re.compile(r"PERFORMANCE OVERVIEW: (\[(?:Latency|TTFT|TPOT)\]) (P\d\d|MINIMUM|MAXIMUM|AVERAGE)")
_CONCURRENCY = Rule(
    "concurrency",
    "mean of e2el_ms × requests_per_s / 1000",
    lambda of: of["mean e2el_ms"] * of["requests_per_s"] * ValueRange(0.001, 0.001),
)


def _runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """The run of the sections of requests and of performance; lines of the other sections are settings."""
    entries, settings, version = [], {}, None
    if "= DATASET DETAILS" not in piece.lines:
        raise piece.error("the section DATASET DETAILS is missing: the report is cut off")
    for line, label, text, _ in piece.rows:
        match = _STATISTIC.fullmatch(label)
        if match or label in reader.figures:
            name, statistic = (match[1], statistic_of(match[2])) if match else (label, None)
            entries.append(Entry(name, text, line, statistic))
        elif re.fullmatch(r".*: TensorRT[ -]LLM Version", label):
            version = text
        elif not label.startswith(("DATASET", "PERFORMANCE", "= ")):
            settings[label.partition(": ")[2]] = text
    yield ToolRun(entries, settings, version)


READERS.register(
    "trtllm-bench, console",
    Reader(
        tool="trtllm-bench",
        form="frame",
        markers=frozenset({"= PERFORMANCE OVERVIEW", "PERFORMANCE OVERVIEW: Request Throughput (req/sec)"}),
        figures=_FIGURES,
        families={
            "[Latency]": FigureForm("e2el_ms", 4),
            "[TTFT]": FigureForm("ttft_ms", 4),
            "[TPOT]": FigureForm("tpot_ms", 4),
        },
        required=("requests_per_s", "output_tokens_per_s", "duration_s"),
        rules=(REQUEST_RATE, MEAN_TOKENS_RATE, _CONCURRENCY),
        within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
        definitions={
            "requests_per_s": "of requests handed to the engine in process, without a server",
            "duration_s": "from the first start of a request to the last end",
        },
        runs=_runs,
    ),
)
