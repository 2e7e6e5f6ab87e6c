"""AISBench (`ais_bench --mode perf`, 3.0 and 3.1): the two tables that it prints for a task, and what it saves.

Source: `ais_bench/benchmark/calculators/base_perf_metric_calculator.py` and `summarizers/default_perf.py` of 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from servelab.recorded.readers.consistency import REQUESTS, TOKEN_RATES
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import READERS, Entry, FigureForm, Reader, ToolRun, statistic_of
from servelab.recorded.readers.tables import TableRow

_LATENCIES = {"E2EL": "e2el_ms", "TTFT": "ttft_ms", "TPOT": "tpot_ms", "ITL": "itl_ms"}
_TOTALS = {
    "Benchmark Duration": ("ms", FigureForm("duration_s", None, 0.001)),
    "Total Requests": ("", FigureForm("requests", 0)),
    "Failed Requests": ("", FigureForm("requests_failed", 0)),
    "Success Requests": ("", FigureForm("requests_completed", 0)),
    "Concurrency": ("", FigureForm("concurrency", None)),
    "Request Throughput": ("req/s", FigureForm("requests_per_s", None)),
    "Total Input Tokens": ("", FigureForm("input_tokens", 0)),
    "Total Generated Tokens": ("", FigureForm("output_tokens", 0)),
    "Total Output Tokens": ("", FigureForm("output_tokens", 0)),
    "Input Token Throughput": ("token/s", FigureForm("input_tokens_per_s", None)),
    "Output Token Throughput": ("token/s", FigureForm("output_tokens_per_s", None)),
    "Total Token Throughput": ("token/s", FigureForm("total_tokens_per_s", None)),
}
"""Row → its unit and figure."""
_UNITS = {**dict.fromkeys(_LATENCIES, "ms"), **{name: unit for name, (unit, _) in _TOTALS.items()}}
_REQUIRED = ("duration_s", "requests", "requests_failed", "requests_completed", "requests_per_s")
_LATENCY = ("e2el_ms",)
"""In every table of latencies; the others are of streams only."""


def _console_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    latencies, *totals = piece.tables
    return _staged(piece, latencies.header, latencies.rows, [row for table in totals for row in table.rows])


def _json_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """An object of name → stage → value."""
    rows = []
    for name, stages in piece.document.items():
        if not isinstance(stages, dict) or any(isinstance(value, dict | list) for value in stages.values()):
            raise piece.error(f"`{name}` does not hold one value for each stage")
        rows += [TableRow(piece.first_line, (name, stage, str(value))) for stage, value in stages.items()]
    return _staged(piece, (), (), rows)


def _csv_runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
    """A row for each latency and each stage."""
    header, *rows = piece.table
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise piece.error(f"{len(row)} columns where the table has {len(header)}: a row is cut off", line)
    return _staged(piece, header, [TableRow(line, tuple(row)) for line, row in enumerate(rows, start=2)], ())


def _staged(
    piece: Piece, header: Sequence[str], latencies: Sequence[TableRow], totals: Sequence[TableRow]
) -> Iterator[ToolRun]:
    """A run for each stage: `total`, or `stable`."""
    for stage in dict.fromkeys(row.cells[1] for row in (*latencies, *totals)):
        entries = []
        for line, (name, _, *cells) in ((row.line, row.cells) for row in latencies if row.cells[1] == stage):
            columns = [statistic_of(column) for column in header[2:]]
            if name in _LATENCIES:
                pairs = zip(columns, cells, strict=True)
                entries += [_entry(piece, name, text, line, column) for column, text in pairs if column]
            else:
                entries.append(Entry(name, "", line, raw=f"{name}: {', '.join(cells)}"))
        entries += [_entry(piece, row.cells[0], row.cells[2], row.line) for row in totals if row.cells[1] == stage]
        yield ToolRun(entries, {"stage": stage})


def _entry(piece: Piece, name: str, text: str, line: int, statistic: str | None = None) -> Entry:
    """A value without its unit, which must be that of its row."""
    number, _, unit = text.partition(" ")
    if unit != _UNITS.get(name, unit) and text != "0":
        raise piece.error(f"`{name}` is `{text}`, not a number in {_UNITS[name] or 'no unit'}", line)
    is_count = name in _TOTALS and _TOTALS[name][1].decimals == 0
    whole, _, decimals = number.partition(".")
    value = whole if is_count and decimals in ("0", "00") else number
    return Entry(name, "N/A" if value in ("", "-") else value, line, statistic, f"{name}: {text}")


for _kind, _form, _markers, _required, _runs in (
    ("console", "grid", {"Performance Parameters", "Stage", "Average"}, (*_REQUIRED, *_LATENCY), _console_runs),
    ("JSON", "json", {"Benchmark Duration", "Total Requests", "Request Throughput"}, _REQUIRED, _json_runs),
    ("CSV", "csv", {"Performance Parameters", "E2EL"}, _LATENCY, _csv_runs),
):
    READERS.register(
        f"AISBench, {_kind}",
        Reader(
            tool="aisbench",
            form=_form,
            markers=frozenset(_markers),
            following=(frozenset({"Common Metric", "Stage", "Value"}),),
            figures={name: figure for name, (_, figure) in _TOTALS.items()},
            families={name: FigureForm(metric, None) for name, metric in _LATENCIES.items()},
            settings={"Max Concurrency": "max_concurrency"},
            required=_required,
            rules=(REQUESTS, *TOKEN_RATES),
            within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
            definitions={
                "itl_ms": "the gaps of a request's events, averaged over the request",
                "concurrency": "sum of E2EL / duration",
            },
            runs=_runs,
        ),
    )
