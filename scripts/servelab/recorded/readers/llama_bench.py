"""The Markdown table of `llama-bench`: a row for each test, which is a block.

Source: `tools/llama-bench/llama-bench.cpp`, `markdown_printer`; builds from 2024 to 2026. A row is the mean rate of a
test without a server, so its metrics are its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from servelab.recorded.readers.pieces import Piece
from servelab.recorded.readers.results import READERS, Entry, FigureForm, Reader, ToolRun

_RATE = re.compile(r"(?P<mean>\d+\.\d\d) ± (?P<std>\d+\.\d\d)")
_TEST = re.compile(r"(?:(?P<prompt>pp) ?\d+)?\+?(?:(?P<generated>tg) ?\d+)?(?: @ d ?\d+)?")
_RATES = ("prompt_tokens_per_s", "generated_tokens_per_s", "total_tokens_per_s")


def _runs(reader: Reader, piece: Piece) -> Iterator[ToolRun]:
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
        runs=_runs,
    ),
)
