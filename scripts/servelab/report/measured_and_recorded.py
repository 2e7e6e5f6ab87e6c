"""A live study beside the recorded study of the same name: were the published results reproduced?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from servelab.core.yaml_file import figure, metric_label
from servelab.report.page import Cell, Table, change_cell
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES

ImprovementRow = dict[Any, Any]

KINDS = ("measured", "recorded")


def beside_table(study: StudySummary, kind: str, own: pd.DataFrame, other: pd.DataFrame) -> Table:
    """Baseline, optimized and change of the objective as run, on every workload, measured and recorded side by side.

    `kind` is the study's own kind, one of `KINDS`; `own` and `other` have rows of schemas.IMPROVEMENTS. A side without
    a workload gets dashes.
    """
    other_kind = KINDS[1 - KINDS.index(kind)]
    found = {kind: _workload_rows(study, own), other_kind: _workload_rows(study, other)}
    label = metric_label(study.objective.metric)
    sides = [("Baseline", "baseline_value"), ("Optimized", "value")]
    columns = [f"{name}, {each} ({label})" for name, _ in sides for each in KINDS]
    rows = []
    for workload, title in study.workloads.items():
        cells = [Cell(title, note=workload)]
        for _, column in sides:
            cells += [_figure(found[each].get(workload), column) for each in KINDS]
        cells += [
            change_cell(row, higher_is_better=bool(row["higher_is_better"])) if row else Cell("–")
            for row in (found[each].get(workload) for each in KINDS)
        ]
        rows.append(cells)
    return Table(["Workload", *columns, *(f"Change, {each}" for each in KINDS)], rows, name="measured-and-recorded")


def _workload_rows(study: StudySummary, improvements: pd.DataFrame) -> dict[str, ImprovementRow]:
    chosen = improvements[
        improvements["stage"].isin(LAST_STAGES)
        & (improvements["metric"] == study.objective.metric)
        & (improvements["basis"] == "deployment")
    ]
    return {row["workload"]: row for row in chosen.to_dict("records")}


def _figure(row: ImprovementRow | None, column: str) -> Cell:
    return Cell("–" if row is None else figure(row[column]))
