"""How long baseline and winner took to start: from the command until the first healthy answer."""

from __future__ import annotations

from typing import Any

import pandas as pd

from servelab.core.number_text import figure
from servelab.report.cells import value_or_none
from servelab.report.limit_lines import SIDES
from servelab.study.study import LAST_STAGES
from servelab.study.summary import StudySummary

_KINDS = {"startup_cold_s": "cold {}", "startup_warm_s": "warm {}"}
_UNKNOWN = "whether its weights were in the page cache is not known, or only some were"


def startup_lines(study: StudySummary, table: pd.DataFrame) -> list[str]:
    """A line for each side that started; `table` has rows of schemas.STAGE_TABLE, of older versions perhaps."""
    if "startup_s" not in table:
        return []
    on = study.objective.on
    rows = table[table["stage"].isin(LAST_STAGES) & (table["workload"] == on) & table["startup_s"].notna()]
    return [
        f"{title}: start-up {_text(row)}."
        for side, title in SIDES.items()
        for row in rows[rows["candidate"] == side].to_dict("records")[:1]
    ]


def _text(row: dict[Any, Any]) -> str:
    """Cold and warm starts; a mean of both would be neither."""
    found = [words.format(_seconds(row, name)) for name, words in _KINDS.items() if value_or_none(row[name])]
    return "; ".join(found) or f"{_seconds(row, 'startup_s')}; {_UNKNOWN}"


def _seconds(row: dict[Any, Any], name: str) -> str:
    value, low, high = (value_or_none(row[f"{name}{end}"]) for end in ("", "_ci95_low", "_ci95_high"))
    interval = "" if low is None or high is None else f" (95 % interval {figure(low)} to {figure(high)})"
    return f"{figure(value)} s{interval}"
