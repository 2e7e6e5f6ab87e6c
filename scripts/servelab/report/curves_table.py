"""The curves as a table: what each configuration gave at each point, and which the server could not keep up with."""

from __future__ import annotations

from typing import Any

import pandas as pd

from servelab.core.number_text import estimate, figure, mark
from servelab.report.cells import Cell, Table, value_or_none
from servelab.report.charts.curves import AT, LIMITED, SHOWN

_LATENCIES = {name: title for name, title in SHOWN.items() if name in LIMITED}


def curves_table(curves: pd.DataFrame, repeats: str = "Starts") -> Table:
    """A row for each configuration and point; `curves` has the columns of schemas.CURVES.

    `repeats` is the heading of the numbers of server starts, or of logs.
    """
    rows = [_row(row) for row in curves.to_dict("records")]
    columns = ["Configuration", "Load", "Total tokens/s, as run", "Requests/s", *_LATENCIES.values(), repeats]
    return Table(columns, rows, name="curves")


def _row(row: dict[Any, Any]) -> list[Cell]:
    load = f"{row['curve']}: {AT[row['load']].format(row['level'])}"
    head = [
        Cell(str(row["candidate"]), row["run_id"], str(row["stage"]), is_good=row["candidate"] == "winner"),
        Cell(load, note="the point that decides" if row["decides"] else ""),
    ]
    if row["outcome"] != "ok":
        why = "saturated at a lower rate: not sent" if row["outcome"] == "saturated" else f"failed: {row['reason']}"
        return [*head, Cell(why), *(Cell("–") for _ in range(len(_LATENCIES) + 1)), Cell(f"{row['starts']}")]
    value, low, high = (value_or_none(row[f"total_tokens_per_s{end}"]) for end in ("", "_ci95_low", "_ci95_high"))
    figures = [Cell(figure(row[name]), row["run_id"], value=row[name]) for name in ("requests_per_s", *_LATENCIES)]
    total = Cell(estimate(value, low, high), row["run_id"], value=value, mark=mark(row["validity"]))
    return [*head, total, *figures, Cell(f"{row['starts']}")]
