"""How near baseline and winner are to what their devices can do at most."""

from __future__ import annotations

from typing import Any

import pandas as pd

from servelab.core.number_text import figure
from servelab.report.cells import value_or_none
from servelab.study.study import LAST_STAGES
from servelab.study.summary import StudySummary

SIDES = {"baseline": "Baseline", "winner": "Optimized"}


def limit_lines(study: StudySummary, table: pd.DataFrame) -> list[str]:
    """A line for each side on the deciding workload; `table` has rows of schemas.STAGE_TABLE."""
    on = study.objective.on
    rows = table[table["stage"].isin(LAST_STAGES) & (table["workload"] == on) & (table["outcome"] == "ok")]
    return [
        f"{title}: {_text(row)}, on {study.workloads[on]}."
        for side, title in SIDES.items()
        for row in rows[rows["candidate"] == side].to_dict("records")[:1]
    ]


def _text(row: dict[Any, Any]) -> str:
    note = value_or_none(row["limit_note"]) or "the model's size is not known"
    share = value_or_none(row["share_of_limit"])
    if share is None:
        return f"no physical limit ({note})"
    limit = figure(value_or_none(row["limit_total_tokens_per_s"]))
    return f"{100 * float(share):.2g} % of what its devices can do (physical limit {limit} total tokens/s: {note})"
