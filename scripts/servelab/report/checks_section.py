"""What the checks found: marks on figures of runs that are not valid, and the table of failed checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.yaml_file import MARKS, mark
from servelab.report.page import Cell, Table, value_or_none
from servelab.study.project import StudySummary

_LEVELS = tuple(reversed(MARKS))
"""The worst first."""


class Marks:
    """The mark of each run that is not valid, put on every figure computed from the run."""

    def __init__(self, table: pd.DataFrame) -> None:
        """`table` has rows of schemas.STAGE_TABLE."""
        self._runs: dict[str, tuple[str, str]] = {
            run_id: (row["validity"], str(row["validity_note"]))
            for row in table.to_dict("records")
            if row["validity"] in MARKS
            for run_id in row["run_ids"]
        }

    def __bool__(self) -> bool:
        """Whether any figure has a mark."""
        return bool(self._runs)

    def on(self, table: Table) -> Table:
        """The table with marked figures, each with its reason."""
        return dataclasses.replace(table, rows=[[self._cell(cell) for cell in row] for row in table.rows])

    def _cell(self, cell: Cell) -> Cell:
        found = [self._runs[run_id] for run_id in (cell.run_id, cell.against) if run_id in self._runs]
        if not found:
            return cell
        reasons = [f"{level}: {note}" for level, note in found] + [cell.mark_why] * bool(cell.mark_why)
        sign = mark(*(level for level, _ in found)) + cell.mark
        return dataclasses.replace(cell, mark=sign, mark_why="; ".join(reasons))


def checks_summary(checks: pd.DataFrame) -> str:
    """How many checks ran, and how many passed."""
    counts = checks["level"].value_counts()
    made = len(checks) - counts.get("not applicable", 0)
    runs = checks["run_id"].nunique()
    text = f"{made:,} checks ran on {runs:,} run{'' if runs == 1 else 's'}: {counts.get('ok', 0):,} passed"
    failed = [f"{counts[level]:,} found a run {level}" for level in _LEVELS if level in counts]
    return f"{', '.join([text, *failed])}. {counts.get('not applicable', 0):,} did not apply."


def checks_table(study: StudySummary, checks: pd.DataFrame, measured: Sequence[Mapping[Any, Any]]) -> Table:
    """Every failed check, worst first: the run, what the check saw and what to do.

    `measured` are the rows of the stages' tables and of the curves. A check of a run that is in none of them is a
    `ServelabError`.
    """
    titles = {stage.name: stage.title for stage in study.stages}
    runs: dict[Any, Any] = {run_id: row for row in reversed(measured) for run_id in row["run_ids"]}
    rows = []
    for finding in [each for level in _LEVELS for each in checks[checks["level"] == level].to_dict("records")]:
        run = runs.get(finding["run_id"])
        if run is None:
            raise ServelabError(f"the checks name run {finding['run_id']}, which is in no table")
        workload = study.workloads.get(finding["workload"], finding["workload"])  # a workload's part has no title
        place = f"{titles.get(run['stage'], run['stage'].capitalize())}, {workload}"
        name = Cell(run["candidate"], finding["run_id"], place)
        check = Cell(str(finding["check"]).replace("_", " "), note=finding["level"])
        rows.append([name, check, Cell(finding["saw"]), Cell(value_or_none(finding["action"]) or "")])
    return Table(["Run", "Check", "What it saw", "What to do"], rows)
