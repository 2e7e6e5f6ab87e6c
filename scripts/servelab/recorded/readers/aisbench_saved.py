"""What AISBench 3.1 saves of a task in `performances/<model>/`: the totals as JSON, the latencies as CSV.

Both have the cells of the tables that it prints (`aisbench.py`). Source: `_export_to_csv` and `get_common_res` of
`ais_bench/benchmark/calculators/base_perf_metric_calculator.py`.
"""

from __future__ import annotations

from servelab.recorded import readers
from servelab.recorded.readers.aisbench import AISBenchReader, blocks
from servelab.recorded.readers.documents import Saved
from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.table_layouts import GridRow

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
