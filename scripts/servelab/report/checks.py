"""What the checks made of the runs: marks on their figures, and the findings with what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd

from servelab.errors import ServelabError
from servelab.figures import MARKS, mark
from servelab.report.inputs import Study
from servelab.report.table import Cell, Table, value_or_none

_LEVELS = tuple(reversed(MARKS))
"""The worst first."""


class Marks:
    """The mark of each run that is not valid, for the figures computed from it."""

    def __init__(self, table: pd.DataFrame) -> None:
        """`table` has rows of schemas.STAGE_TABLE."""
        self._runs: dict[str, tuple[str, str]] = {
            row["run_id"]: (row["validity"], str(row["validity_note"]))
            for row in table.to_dict("records")
            if row["validity"] in MARKS
        }

    def __bool__(self) -> bool:
        """Whether any figure has a mark."""
        return bool(self._runs)

    def of(self, *run_ids: str | None) -> str:
        """Mark of a figure computed from these runs: of the worst of them; empty where all are valid."""
        return mark(*(self._runs[run_id][0] for run_id in run_ids if run_id in self._runs))

    def on(self, table: Table) -> Table:
        """The table with its figures marked, each with why."""
        return dataclasses.replace(table, rows=[[self._cell(cell) for cell in row] for row in table.rows])

    def _cell(self, cell: Cell) -> Cell:
        run_ids = [run_id for run_id in (cell.run_id, cell.against) if run_id in self._runs]
        why = "; ".join(f"{level}: {note}" for level, note in (self._runs[run_id] for run_id in run_ids))
        return dataclasses.replace(cell, mark=self.of(*run_ids), mark_why=why) if run_ids else cell


def checks_summary(checks: pd.DataFrame) -> str:
    """How many checks were made, and how many passed."""
    counts = checks["level"].value_counts()
    made = len(checks) - counts.get("not applicable", 0)
    runs = checks["run_id"].nunique()
    text = f"{made:,} checks were made on {runs:,} run{'' if runs == 1 else 's'}: {counts.get('ok', 0):,} passed"
    failed = [f"{counts[level]:,} found a run {level}" for level in _LEVELS if level in counts]
    return f"{', '.join([text, *failed])}. {counts.get('not applicable', 0):,} had nothing to look at."


def checks_table(study: Study, checks: pd.DataFrame, table: pd.DataFrame) -> Table:
    """Every check that was not passed, the worst first: the run, what was seen and what to do.

    Checks of a run that no stage has are a `ServelabError`.
    """
    titles = {stage.name: stage.title for stage in study.stages}
    runs: dict[Any, Any] = {}
    for row in table.to_dict("records"):
        runs.setdefault(row["run_id"], row)
    rows = []
    for level in _LEVELS:
        for finding in checks[checks["level"] == level].to_dict("records"):
            run = runs.get(finding["run_id"])
            if run is None:
                raise ServelabError(f"the checks name run {finding['run_id']}, which is in no stage's table")
            workload = study.workloads.get(finding["workload"], finding["workload"])  # a part of one has no title
            place = f"{titles.get(run['stage'], run['stage'].capitalize())}, {workload}"
            name = Cell(run["candidate"], finding["run_id"], place)
            check = Cell(str(finding["check"]).replace("_", " "), note=level)
            rows.append([name, check, Cell(finding["saw"]), Cell(value_or_none(finding["action"]) or "")])
    return Table(["Run", "Check", "What it saw", "What to do"], rows, name="checks")
