"""A table as both templates draw it: text, a link to the run behind a figure, and a remark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from servelab.figures import change, interval, is_noise, percent


@dataclass(frozen=True)
class Cell:
    """A figure or a text; `run_id` links it to the run it was computed from, `link` to another folder of results."""

    text: str
    run_id: str | None = None
    note: str = ""
    is_good: bool = False
    """To be set in bold: the winner, or a gain beyond noise."""
    link: str = ""

    @property
    def href(self) -> str:
        """Address relative to the report; empty for none."""
        folder = f"runs/{self.run_id}" if self.run_id else self.link
        return f"../../{folder}/" if folder else ""


@dataclass(frozen=True)
class Table:
    """Columns and rows; the first column names the row."""

    columns: list[str]
    rows: list[list[Cell]]


def value_or_none(value: Any) -> Any:
    """Pandas' NaN and None as None; everything else as it is."""
    return None if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


NO_INTERVAL = "no interval: a single round, or rounds too far apart"


def change_cell(row: dict[Any, Any], run_id: str | None = None, higher_is_better: bool = True) -> Cell:
    """A change with its 95 % interval in words; `row` has the three `change_…` columns."""
    value, low, high = (
        value_or_none(row[name]) for name in ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")
    )
    if value is None:
        return Cell("–")
    if low is None or high is None:
        return Cell(percent(value), run_id, NO_INTERVAL)
    if is_noise(low, high):
        return Cell(change(value, low, high), run_id, f"within noise: {interval(low, high)}")
    return Cell(change(value, low, high), run_id, interval(low, high), is_good=(value > 0) == higher_is_better)
