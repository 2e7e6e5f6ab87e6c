"""What ended the search for the capacity of baseline and winner, on each server start."""

from __future__ import annotations

import pandas as pd

from servelab.report.limit_lines import SIDES
from servelab.study.study import LAST_STAGES
from servelab.study.summary import StudySummary


def capacity_lines(study: StudySummary, table: pd.DataFrame) -> list[str]:
    """A line for each side and workload whose load was searched; `table` has rows of schemas.STAGE_TABLE."""
    if "capacity_note" not in table:
        return []
    rows = table[table["stage"].isin(LAST_STAGES) & table["capacity_note"].notna()].to_dict("records")
    return [
        f"{title}, {study.workloads[row['workload']]}: why the search for the capacity ended: {row['capacity_note']}."
        for side, title in SIDES.items()
        for row in rows
        if row["candidate"] == side
    ]
