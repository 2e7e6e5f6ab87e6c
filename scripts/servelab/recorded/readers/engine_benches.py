"""What engines bring along to be measured with: LMDeploy's profiling scripts, `trtllm-bench`, `llama-bench`.

Source: `lmdeploy/profiler.py` since 0.7, `Profiler.summarize`; of `trtllm-bench throughput` and `latency`, 0.17 to 1.2,
`tensorrt_llm/bench/dataclasses/reporting.py`; of llama-bench, builds from 2024 to 2026,
`tools/llama-bench/llama-bench.cpp`, `markdown_printer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from servelab.recorded.readers.consistency import MEAN_TOKENS_RATE, REQUEST_RATE, TOKEN_RATES
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import LATENCIES, READERS, Entry, FigureForm, Reader, ToolRun, statistic_of

_COLUMNS = re.compile(r"mean(?: +P\d+(?:\.\d+)?)+")


def _lmdeploy_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
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
        runs=_lmdeploy_runs,
    ),
)

_TRTLLM = {
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


def _trtllm_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
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
        figures=_TRTLLM,
        families={
            "[Latency]": FigureForm("e2el_ms", 4),
            "[TTFT]": FigureForm("ttft_ms", 4),
            "[TPOT]": FigureForm("tpot_ms", 4),
        },
        required=("requests_per_s", "output_tokens_per_s", "duration_s"),
        rules=(REQUEST_RATE, MEAN_TOKENS_RATE),
        within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
        definitions={
            "requests_per_s": "of requests handed to the engine in process, without a server",
            "duration_s": "from the first start of a request to the last end",
        },
        runs=_trtllm_runs,
    ),
)

_RATE = re.compile(r"(?P<mean>\d+\.\d\d) ± (?P<std>\d+\.\d\d)")
_TEST = re.compile(r"(?:(?P<prompt>pp) ?\d+)?\+?(?:(?P<generated>tg) ?\d+)?(?: @ d ?\d+)?")
_RATES = ("prompt_tokens_per_s", "generated_tokens_per_s", "total_tokens_per_s")


def _llama_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    for row in piece.tables[0].rows:
        values = dict(zip(piece.tables[0].header, row.cells, strict=True))
        test, text = values["test"], values.pop("t/s")
        rate, match = _RATE.fullmatch(text), _TEST.fullmatch(test)
        if rate is None or match is None or not test:
            raise piece.error(f"`{test}: {text}` is no test and rate of llama-bench", row.line)
        name = _RATES[2 if match["prompt"] and match["generated"] else 0 if match["prompt"] else 1]
        entries = [Entry(name, number, row.line, statistic) for statistic, number in rate.groupdict().items()]
        yield ToolRun(entries, values, line=row.line)


READERS.register(
    "llama-bench, Markdown",
    Reader(
        tool="llama-bench",
        form="grid",
        markers=frozenset({"model", "size", "params", "backend", "test", "t/s"}),
        figures={},
        families={name: FigureForm(name) for name in _RATES},
        required=(),
        definitions=dict.fromkeys(
            _RATES, "of one sequence without a server: the mean over repetitions, tokens / time of a test"
        ),
        runs=_llama_runs,
    ),
)
