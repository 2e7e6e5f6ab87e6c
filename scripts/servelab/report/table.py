"""A table as both templates draw it: text, a link to the run behind a figure, and a remark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from servelab.figures import NO_BREAK, change, estimate, figure, interval, is_noise, percent

MOST_ROWS = 100
"""Rows of a table in the report; more make a page that nobody reads."""


@dataclass(frozen=True)
class Cell:
    """A figure or a text; `run_id` links it to the run it was computed from, `link` to an address of its own."""

    text: str
    run_id: str | None = None
    note: str = ""
    is_good: bool = False
    """To be set in bold: the winner, or a gain beyond noise."""
    link: str = ""
    against: str | None = None
    """The run that a change is measured against."""
    mark: str = ""
    """Put behind the text where a run that it was computed from is not valid."""
    mark_why: str = ""
    value: float | None = None
    """The number behind the text, as measured."""


@dataclass(frozen=True)
class Table:
    """Columns and rows; the first column names the row."""

    columns: list[str]
    rows: list[list[Cell]]
    name: str = ""
    """Of its files in the folder `tables`; empty for a part of another table."""
    most: int = MOST_ROWS
    """Rows that a report shows; the files have all."""

    @property
    def shown(self) -> list[list[Cell]]:
        """The rows that a report shows."""
        return self.rows[: self.most]


def value_or_none(value: Any) -> Any:
    """Pandas' NaN and None as None; everything else as it is."""
    return None if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


NO_INTERVAL = "no interval: a single round, or rounds too far apart"


class Measured:
    """The measured figures of all runs (schemas.METRICS), as cells: mean, half of the 95 % interval, and n."""

    def __init__(self, metrics: pd.DataFrame) -> None:
        self._rows: dict[tuple[str, str], dict[Any, Any]] = {}
        self._of_run: dict[str, list[dict[Any, Any]]] = {}
        for row in metrics.to_dict("records"):
            self._rows[row["run_id"], row["metric"]] = row
            self._of_run.setdefault(row["run_id"], []).append(row)

    def of_run(self, run_id: str | None) -> list[dict[Any, Any]]:
        """Rows of every metric that a run has a value of."""
        return [row for row in self._of_run.get(run_id or "", ()) if value_or_none(row["mean"]) is not None]

    def cell(self, run_id: str | None, metric: str, mean: float | None = None, *, with_p99: bool = False) -> Cell:
        """`1,204 ± 12`, with P99 `P99 2,310` below it; `mean` where the table beside it gives its own."""
        row = self._rows.get((run_id or "", metric))
        if row is None or row["n"] == 0:
            return Cell("–" if mean is None else figure(mean), None if mean is None else run_id, value=mean)
        value = row["mean"] if mean is None else mean
        text = estimate(value, row["ci95_low"], row["ci95_high"])
        return Cell(text, run_id, f"P99{NO_BREAK}{figure(row['p99'])}" if with_p99 else "", value=value)

    def counts(self, run_ids: Iterable[str | None]) -> Cell:
        """Rounds and successful requests behind the figures of these runs: `3 rounds, 3,000 requests`."""
        rows = [row for run_id in run_ids if (row := self._of_requests(run_id))]
        texts = []
        for unit, column in (("round", "rounds"), ("request", "n")):
            # A recorded log may not say how many requests its latencies are of.
            if counts := [row[column] for row in rows if value_or_none(row[column]) is not None]:
                low, high = int(min(counts)), int(max(counts))
                number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
                texts.append(f"{number} {unit}{'' if high == 1 else 's'}")
        return Cell(", ".join(texts) or "–")

    def _of_requests(self, run_id: str | None) -> dict[Any, Any] | None:
        """The row of a latency that every successful request has."""
        return self._rows.get((run_id or "", "e2el_ms")) or self._rows.get((run_id or "", "ttft_ms"))


def change_cell(
    row: dict[Any, Any], run_id: str | None = None, higher_is_better: bool = True, against: str | None = None
) -> Cell:
    """A change with its 95 % interval in words; `row` has the three `change_…` columns, `against` is the other run."""
    value, low, high = (
        value_or_none(row[name]) for name in ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")
    )
    if value is None:
        return Cell("–")
    if low is None or high is None:
        return Cell(percent(value), run_id, "no interval", against=against, value=value)
    if is_noise(low, high):
        return Cell(
            change(value, low, high), run_id, f"within noise: {interval(low, high)}", against=against, value=value
        )
    is_good = (value > 0) == higher_is_better
    return Cell(change(value, low, high), run_id, interval(low, high), is_good, against=against, value=value)
