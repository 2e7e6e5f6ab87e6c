"""Baseline against optimized: the headline, and the tables over all workloads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from servelab.figures import NO_BREAK, change, figure, interval, is_noise, metric_label
from servelab.metrics import METRICS
from servelab.report.inputs import Recommended, Study
from servelab.report.table import NO_INTERVAL, Cell, Measured, Table, change_cell, value_or_none
from servelab.study import COMPARISON

Row = dict[Any, Any]


@dataclass(frozen=True)
class Headline:
    """The answer in a line: a big figure, if there is one, and what it is."""

    figure: str
    text: str
    run_id: str


def headline(study: Study, recommended: Recommended, improvements: pd.DataFrame) -> Headline:
    """The winner's change of the objective on the workload that decided, on the study's basis."""
    objective = study.objective
    title = study.workloads[objective.on]
    if not recommended.changed:
        text = "No candidate beat the baseline beyond noise and margin: keep the baseline."
        return Headline("", text, recommended.run_id)
    basis: str = objective.per
    if not (rows := _rows(improvements, objective.metric, basis)):  # only rates have figures per accelerator and node
        basis = "deployment"
        rows = _rows(improvements, objective.metric, basis)
    if objective.on not in rows:
        failed = next((entry.failed for entry in recommended.improvements if entry.workload == objective.on), None)
        return Headline("", f"Not comparable on {title}: {failed or 'a run failed'}", recommended.run_id)
    row = rows[objective.on]
    value, low, high = (
        value_or_none(row[name]) for name in ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")
    )
    extrapolated = " (extrapolated)" if row["extrapolated"] else ""
    text = f"{metric_label(objective.metric, basis)}{extrapolated} on {title}, against the baseline"
    if low is None:
        text += f" ({NO_INTERVAL})"
    elif is_noise(low, high):
        text += f": within noise ({interval(low, high)})"
    else:
        text += f" ({interval(low, high)})"
    return Headline(change(value, low, high), text, recommended.run_id)


def objective_table(
    study: Study, recommended: Recommended, improvements: pd.DataFrame, measured: Measured, table: pd.DataFrame
) -> Table:
    """The objective as run on every workload; per accelerator and per node too where these are other figures."""
    metric = study.objective.metric
    label = metric_label(metric)
    as_run = _rows(improvements, metric, "deployment")
    scaled = {basis: _rows(improvements, metric, basis) for basis in ("accelerator", "node")}
    others = {basis: found for basis, found in scaled.items() if _is_scaled(found)}
    columns = [
        "Workload",
        f"Baseline ({label})",
        f"Optimized ({label})",
        "Change",
        *(f"Per {basis}" for basis in others),
    ]
    rows: list[list[Cell]] = []
    failures = {entry.workload: entry.failed for entry in recommended.improvements}
    comparison = table[table["stage"] == COMPARISON]
    for workload, title in study.workloads.items():
        cells = [Cell(title, note=workload)]
        sides = comparison[comparison["workload"] == workload]
        if workload in as_run:
            row = as_run[workload]
            cells += [*_values(row, measured), _change(row)]
            cells += [_other_basis(basis_rows[workload], label) for basis_rows in others.values()]
        else:
            cells += _only_baseline(sides, metric, measured)
            cells += [Cell("–", note=failures.get(workload) or "")] + [Cell("–") for _ in others]
        cells.append(measured.counts(sides[sides["outcome"] == "ok"]["run_id"]))
        rows.append(cells)
    return Table([*columns, "n"], rows, name="objective")


def other_metrics_table(study: Study, improvements: pd.DataFrame, measured: Measured) -> Table:
    """Every other metric as run, workload by workload."""
    chosen = improvements[
        (improvements["stage"] == COMPARISON)
        & (improvements["basis"] == "deployment")
        & (improvements["metric"] != study.objective.metric)
    ]
    order = {workload: position for position, workload in enumerate(study.workloads)}
    records = sorted(chosen.to_dict("records"), key=lambda row: order[row["workload"]])
    rows = [
        [
            Cell(metric_label(row["metric"]), note=study.workloads[row["workload"]]),
            *_values(row, measured),
            _change(row),
            measured.counts([row["baseline_run_id"], row["run_id"]]),
        ]
        for row in records
    ]
    return Table(["Metric", "Baseline", "Optimized", "Change", "n"], rows, name="other-metrics")


def accelerators_text(study: Study, table: pd.DataFrame) -> str:
    """How many accelerators of a node each side used, and what that makes of figures per accelerator and per node."""
    comparison = table[table["stage"] == COMPARISON]
    counts = {row["candidate"]: int(row["accelerators"]) for row in comparison.to_dict("records")}
    node = study.hardware.per_node
    if set(counts.values()) == {node} == {1}:
        return "A node has one accelerator: figures per accelerator and per node are those of the deployment."
    used = f"Baseline and optimized configuration used {counts['baseline']} of {node} accelerators of a node."
    if len(set(counts.values())) > 1:
        used = (
            f"The baseline used {counts['baseline']} of {node} accelerators of a node, the optimized configuration "
            f"{counts['winner']}."
        )
    if METRICS.get(study.objective.metric).is_rate and any(node // count > 1 for count in counts.values()):
        used += (
            " Figures per node are extrapolated: they multiply one deployment by the number that fits a node; nothing "
            "that large was run."
        )
    return used


def _rows(improvements: pd.DataFrame, metric: str, basis: str) -> dict[str, Row]:
    chosen = improvements[
        (improvements["stage"] == COMPARISON) & (improvements["metric"] == metric) & (improvements["basis"] == basis)
    ]
    return {row["workload"]: row for row in chosen.to_dict("records")}


def _is_scaled(rows: dict[str, Row]) -> bool:
    """True where figures on a basis are not those of the deployments as run."""
    return any(row["factor"] != 1 or row["baseline_factor"] != 1 for row in rows.values())


def _values(row: Row, measured: Measured) -> list[Cell]:
    """Both sides as run, with the intervals of their own runs."""
    sides = (("baseline_run_id", "baseline_value"), ("run_id", "value"))
    return [measured.cell(row[run], row["metric"], row[value]) for run, value in sides]


def _change(row: Row) -> Cell:
    return change_cell(row, row["run_id"], bool(row["higher_is_better"]), row["baseline_run_id"])


def _other_basis(row: Row, label: str) -> Cell:
    values = f"{figure(row['baseline_value'])} → {figure(row['value'])} {label[:1].lower()}{label[1:]}"
    extrapolated = (
        f", extrapolated (×{NO_BREAK}{row['factor']:g})" if row["extrapolated"] and row["factor"] != 1 else ""
    )
    return replace(_change(row), note=values + extrapolated)


def _only_baseline(sides: pd.DataFrame, metric: str, measured: Measured) -> list[Cell]:
    """Baseline and winner where they cannot be compared: what was measured, or that it failed."""
    cells = []
    for candidate in ("baseline", "winner"):
        rows = sides[sides["candidate"] == candidate].to_dict("records")
        if not rows:
            cells.append(Cell("–"))
        elif rows[0]["outcome"] != "ok":
            cells.append(Cell("failed", rows[0]["run_id"], str(rows[0]["reason"]).replace("_", " ")))
        else:
            cells.append(measured.cell(rows[0]["run_id"], metric))
    return cells
