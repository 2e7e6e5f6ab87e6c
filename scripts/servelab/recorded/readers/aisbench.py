"""The two tables that AISBench (`ais_bench --mode perf`, 3.0 and 3.1) prints for a task.

Source: `ais_bench/benchmark/calculators/base_perf_metric_calculator.py` and `summarizers/default_perf.py` of 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from servelab.recorded import readers
from servelab.recorded.readers.consistency import REQUESTS, TOKEN_RATES
from servelab.recorded.readers.documents import Cells, Saved
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import GridRow

_PARAMETERS = {"E2EL": "e2el_ms", "TTFT": "ttft_ms", "TPOT": "tpot_ms", "ITL": "itl_ms"}
_STATISTICS = {"Average": "mean", "Min": "minimum", "Max": "maximum", "Median": "median"}
_COMMON = {
    "Benchmark Duration": ("duration_s", "ms", 0.001),
    "Total Requests": ("requests", "", 1),
    "Failed Requests": ("requests_failed", "", 1),
    "Success Requests": ("requests_completed", "", 1),
    "Concurrency": ("concurrency", "", 1),
    "Request Throughput": ("requests_per_s", "req/s", 1),
    "Total Input Tokens": ("input_tokens", "", 1),
    "Total Generated Tokens": ("output_tokens", "", 1),
    "Total Output Tokens": ("output_tokens", "", 1),
    "Input Token Throughput": ("input_tokens_per_s", "token/s", 1),
    "Output Token Throughput": ("output_tokens_per_s", "token/s", 1),
    "Total Token Throughput": ("total_tokens_per_s", "token/s", 1),
}
"""Row → metric, its unit, and the factor to the metric's."""
_COUNTS = ("requests", "requests_completed", "requests_failed", "input_tokens", "output_tokens")
_SETTINGS = {"Max Concurrency": "max_concurrency"}
_REQUIRED = ("duration_s", "requests", "requests_failed", "requests_completed", "requests_per_s")
_LATENCY = ("e2el_ms", "mean")
"""In every table of latencies; the others are of streams only."""
_TEXT = re.compile(r"(?P<number>\S+)(?: (?P<unit>ms|req/s|token/s))?")


class AISBenchReader:
    """Reads the table of latencies and the one of totals; a block for each stage."""

    tool = "aisbench"
    form = "grid"
    markers = frozenset({"Performance Parameters", "Stage", "Average"})
    others = (frozenset({"Common Metric", "Stage", "Value"}),)

    def knows(self, name: str) -> bool:
        """Whether it prints a row of such a name."""
        return name in _PARAMETERS or name in _COMMON

    def read(self, piece: Piece) -> list[readers.Block]:
        """A block for each stage: `total`, or `stable`."""
        saved = Cells(piece).saved
        if len(piece.grids) != 2:
            raise saved.error("the table `Common Metric` is missing: the output is cut off")
        latencies, common = piece.grids
        return blocks(piece, latencies.rows, latencies.header, common.rows)


def blocks(
    piece: Piece, latencies: Sequence[GridRow], header: Sequence[str], common: Sequence[GridRow]
) -> list[readers.Block]:
    """A block for each stage of the rows of both tables; `header` is of the latencies, and one of both may be empty."""
    stages = dict.fromkeys(row.cells[1] for row in (*latencies, *common))
    return [_block(piece, stage, latencies, header, common) for stage in stages]


def _block(
    piece: Piece, stage: str, latencies: Sequence[GridRow], header: Sequence[str], common: Sequence[GridRow]
) -> readers.Block:
    cells = Cells(piece)
    unknown = []
    settings: dict[str, object] = {"stage": stage}
    seen: dict[str, int] = {}
    for rows in (latencies, common):
        for row in (row for row in rows if row.cells[1] == stage):
            name = row.cells[0]
            if name in seen:
                raise cells.saved.error(f"`{name}` occurs twice, first in line {seen[name]}", row.line)
            seen[name] = row.line
            if rows is latencies and name in _PARAMETERS:
                for column, text in zip(header[2:], row.cells[2:], strict=True):
                    if column in _STATISTICS or re.fullmatch(r"P\d\d?", column):
                        statistic = _STATISTICS.get(column, column.lower())
                        _add(cells, (_PARAMETERS[name], statistic), text, row, "ms", 1)
            elif rows is common and name in _COMMON:
                metric, unit, factor = _COMMON[name]
                _add(cells, (metric, readers.VALUE), row.cells[2], row, unit, factor)
            elif name in _SETTINGS:
                settings[_SETTINGS[name]] = cells.number(row.cells[2], row, None)[0]
            else:
                unknown.append(readers.UnknownLine(row.line, f"{name}: {', '.join(row.cells[2:])}"))
    required = [(metric, readers.VALUE) for metric in _REQUIRED if common] + [_LATENCY for _ in latencies[:1]]
    for metric, statistic in required:
        if (metric, statistic) not in cells.saved.figures:
            raise cells.saved.error(f"the row of {metric} is missing: the table is cut off")
    return cells.saved.block(
        tool=AISBenchReader.tool,
        version=None,
        definitions={
            "itl_ms": "the gaps of a request's events, averaged over the request",
            "concurrency": "sum of E2EL / duration",
        },
        settings=settings,
        unknown=unknown,
        identities=(REQUESTS, *TOKEN_RATES),
        within_run=("ttft_ms", "tpot_ms", "e2el_ms"),
    )


def _add(cells: Cells, key: tuple[str, str], text: str, row: GridRow, unit: str, factor: float) -> None:
    match = _TEXT.fullmatch(text)
    if match is None or ((match["unit"] or "") != unit and text != "0"):
        raise cells.saved.error(f"`{row.cells[0]}` is `{text}`, not a number in {unit or 'no unit'}", row.line)
    number = match["number"]
    if key[0] in _COUNTS and number.endswith((".0", ".00")):
        number = number.partition(".")[0]
    cells.add(key, number, row, 0 if key[0] in _COUNTS else None, factor)


readers.READERS.register("AISBench, console", AISBenchReader())


_PRINTED = AISBenchReader()


class AISBenchJsonReader:
    """Reads the totals: an object of name → stage → value."""

    tool = _PRINTED.tool
    form = "json"
    markers = frozenset({"Benchmark Duration", "Total Requests", "Request Throughput"})

    def knows(self, name: str) -> bool:
        """Whether it writes a figure under such a key."""
        return _PRINTED.knows(name)

    def read(self, piece: Piece) -> list[readers.Block]:
        """A block for each stage: `total`, or `stable`."""
        rows = []
        for name, stages in piece.document.items():
            if not isinstance(stages, dict) or any(isinstance(value, dict | list) for value in stages.values()):
                raise Saved(piece).error(f"`{name}` does not hold one value for each stage")
            rows += [GridRow(piece.first_line, (name, stage, str(value))) for stage, value in stages.items()]
        return blocks(piece, (), (), rows)


class AISBenchCsvReader:
    """Reads the latencies: a row for each of them and each stage."""

    tool = _PRINTED.tool
    form = "csv"
    markers = frozenset({"Performance Parameters", "E2EL"})

    def knows(self, name: str) -> bool:
        """Whether it writes a row of such a name."""
        return _PRINTED.knows(name)

    def read(self, piece: Piece) -> list[readers.Block]:
        """A block for each stage: `total`, or `stable`."""
        header, *rows = piece.table
        if header[:2] != ["Performance Parameters", "Stage"]:
            raise Saved(piece).error("the table does not begin with `Performance Parameters,Stage`")
        latencies = []
        for line, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise Saved(piece).error(
                    f"{len(row)} columns where the table has {len(header)}: a row is cut off", line
                )
            latencies.append(GridRow(line, tuple(row)))
        return blocks(piece, latencies, header, ())


readers.READERS.register("AISBench, JSON", AISBenchJsonReader())
readers.READERS.register("AISBench, CSV", AISBenchCsvReader())
