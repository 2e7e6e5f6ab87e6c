"""The configurations on the Pareto front by name, which the chart of throughput against latency cannot show."""

from __future__ import annotations

import pandas as pd

from servelab.core.number_text import figure
from servelab.metrics.pareto import LATENCIES, THROUGHPUT, measured, on_front
from servelab.report.cells import Cell, Measured, Table


def front_table(search: pd.DataFrame, figures: Measured) -> Table:
    """A row for each run on the front of a latency, lowest latency first; `search` as in the chart."""
    runs = measured(search)
    fronts = {column: on_front(runs[runs[column].notna()], column) for column in LATENCIES}
    on = {column: set(front.index[front]) for column, front in fronts.items()}
    shown = runs[runs.index.isin(set().union(*on.values()))].sort_values([*LATENCIES], kind="stable")
    rows = [
        [
            Cell(row["candidate"], row["run_id"], str(row["stage_title"]), is_good=row["role"] == "Winner"),
            Cell(figure(row[THROUGHPUT]), row["run_id"], value=row[THROUGHPUT]),
            *(figures.cell(list(row["run_ids"]), column.removesuffix("_mean"), row[column]) for column in LATENCIES),
            Cell(" and ".join(LATENCIES[c].split()[1] for c in LATENCIES if index in on[c])),
        ]
        for index, row in shown.iterrows()
    ]
    return Table(["Candidate", "Total tokens/s per accelerator", *LATENCIES.values(), "On the front of"], rows, "front")
