"""One section a stage: what was tried, what came of it, and why the winner won."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from servelab.errors import ServelabError
from servelab.figures import NO_BREAK, duration, estimate, metric_label
from servelab.metrics import METRICS
from servelab.objective import per_basis
from servelab.report.inputs import Decision, StageOutline, Study, Verdict
from servelab.report.table import Cell, Measured, Table, change_cell, value_or_none

Row = dict[Any, Any]

RATES = ("total_tokens_per_s", "output_tokens_per_s", "requests_per_s")
LATENCIES = ("ttft_ms", "tpot_ms")


@dataclass(frozen=True)
class Failure:
    """A candidate that could not be measured, with the telling line."""

    candidate: str
    reason: str
    message: str
    run_id: str | None


@dataclass(frozen=True)
class StageSection:
    """What the report says of one stage."""

    name: str
    title: str
    applies: bool
    outcome: str
    reason: str
    effort: str = ""
    table: Table | None = None
    failures: list[Failure] = field(default_factory=list)
    not_tried: list[tuple[str, str]] = field(default_factory=list)
    """Candidates that were not run, and why."""


def stage_sections(
    study: Study, table: pd.DataFrame, decisions: Sequence[Decision], measured: Measured
) -> list[StageSection]:
    """The sections in the order of the search; `ServelabError` for a stage without decision or table."""
    decision_of = {decision.stage: decision for decision in decisions}
    for kind, known in (("decision.json", set(decision_of)), ("table.parquet", set(table["stage"]))):
        if missing := [stage.name for stage in study.stages if stage.name not in known]:
            raise ServelabError(f"no {kind} was given for stage {', '.join(missing)} of study {study.study}")
    return [
        _section(stage, table[table["stage"] == stage.name], decision_of[stage.name], measured)
        for stage in study.stages
    ]


def _section(stage: StageOutline, table: pd.DataFrame, decision: Decision, measured: Measured) -> StageSection:
    if not decision.applies:
        not_tried = [(candidate, decision.reason) for candidate in stage.candidates]
        outcome = "Not applicable"
        return StageSection(stage.name, decision.title, False, outcome, decision.reason, not_tried=not_tried)
    rows = table.sort_values("position").to_dict("records")
    verdicts = {verdict.candidate: verdict for verdict in decision.candidates}
    failures = [
        Failure(
            row["candidate"],
            str(row["reason"]).replace("_", " "),
            str(value_or_none(row["message"]) or ""),
            row["run_id"],
        )
        for row in rows
        if row["outcome"] != "ok" and value_or_none(row["run_id"])
    ]
    refused = [
        (row["candidate"], f"refused before any run: {row['message']}")
        for row in rows
        if not value_or_none(row["run_id"])
    ]
    seen = {row["candidate"] for row in rows}
    same = [
        (candidate, "the same configuration as the incumbent or another candidate")
        for candidate in stage.candidates
        if candidate not in seen
    ]
    outcome = "Winner" if decision.changed else "The incumbent stays"
    return StageSection(
        stage.name,
        decision.title,
        True,
        outcome,
        decision.reason,
        _effort(table),
        _table(rows, verdicts, measured),
        failures,
        refused + same,
    )


def _effort(table: pd.DataFrame) -> str:
    runs = table.dropna(subset=["run_id"]).drop_duplicates("run_id")
    return (
        f"{len(runs)} run{'' if len(runs) == 1 else 's'}, {duration(runs['accelerator_s'].sum())} of accelerator time"
    )


def _table(rows: list[Row], verdicts: dict[str, Verdict], measured: Measured) -> Table:
    """The stage's table; columns that say the same in every row, or nothing, are left out."""
    objective, per = str(rows[0]["objective"]), str(rows[0]["objective_per"])
    columns: dict[str, list[Cell]] = {"Candidate": [_candidate(row, verdicts) for row in rows]}
    engines = [f"{row['engine']} {row['engine_version']}" for row in rows]
    if len(set(engines)) > 1:
        columns["Engine"] = [Cell(engine) for engine in engines]
    if len({row["accelerators"] for row in rows}) > 1:
        columns["Accelerators"] = [Cell(str(row["accelerators"])) for row in rows]
    columns[metric_label(objective, per)] = [_objective(row) for row in rows]
    columns["Change"] = [_change(row, verdicts, rows[0]["run_id"]) for row in rows]
    others = {
        metric_label(rate): [measured.cell(row["run_id"], rate) for row in rows]
        for rate in RATES
        if per != "deployment" or rate != objective
    }
    for latency in LATENCIES:
        others[metric_label(latency)] = [measured.cell(row["run_id"], latency, with_p99=True) for row in rows]
    others["E2EL (ms)"] = [measured.cell(row["run_id"], "e2el_ms") for row in rows]
    columns |= {name: cells for name, cells in others.items() if any(cell.run_id for cell in cells)}
    columns["n"] = [measured.counts([row["run_id"]]) for row in rows]
    return Table(list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)])


def _candidate(row: Row, verdicts: dict[str, Verdict]) -> Cell:
    found = verdicts.get(row["candidate"])
    verdict = found.verdict if found else row["outcome"]
    # What was measured and still cannot win says why here; what was not measured has a message of its own.
    said = f"{verdict}: {found.why}" if found and verdict == "failed" and row["outcome"] == "ok" else verdict
    changes = _changes(json.loads(row["changes"]))
    note = said if changes in ("", row["candidate"]) else f"{said}; {changes}"
    return Cell(row["candidate"], value_or_none(row["run_id"]), note, is_good=verdict == "winner")


def _changes(changes: dict[str, Any]) -> str:
    """What a candidate changes, as `key=value` in one line; a bare flag is its name alone."""
    texts = []
    for key, value in changes.items():
        if isinstance(value, dict):
            texts.append(_changes(value))
        else:
            texts.append(key if value is None else f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    return ", ".join(texts)


def _objective(row: Row) -> Cell:
    value = value_or_none(row["objective_value"])
    if value is None:
        return Cell("–")
    text = estimate(value, row["objective_ci95_low"], row["objective_ci95_high"])
    factor, extrapolated = per_basis(row["objective_per"], int(row["accelerators"]), int(row["accelerators_per_node"]))
    return Cell(text, row["run_id"], f"extrapolated (×{NO_BREAK}{factor:g})" if extrapolated else "")


def _change(row: Row, verdicts: dict[str, Verdict], incumbent: str | None) -> Cell:
    verdict = verdicts.get(row["candidate"])
    if verdict is None:
        return Cell("–")
    higher_is_better = bool(METRICS.get(str(row["objective"])).higher_is_better)
    cell = change_cell(verdict.model_dump(), row["run_id"], higher_is_better, incumbent)
    if verdict.pair_id is None:
        return cell
    note = f"measured again beside the incumbent, pair {verdict.pair_id}"
    return replace(cell, note=f"{cell.note}; {note}" if cell.note else note)
