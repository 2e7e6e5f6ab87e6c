"""Versions of an engine side by side: what an upgrade changed, broke or fixed, and the answer under each version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from servelab.core.figure_text import MARKS_KEY, estimate, mark, metric_label
from servelab.metrics.definitions import METRICS
from servelab.report.page import Cell, Table, change_cell, value_or_none
from servelab.study.project import StudySummary

_VERDICTS = ("better", "worse", "no difference", "new failure", "fixed failure", "still fails", "not comparable")
_FAILURES = ("new failure", "fixed failure", "still fails", "not comparable")


def versions_section(study: StudySummary, history: pd.DataFrame, answers: pd.DataFrame) -> dict[str, Any] | None:
    """`summary`, `marks_key`, and the tables of `changes` and of `answers`; None for one version.

    From rows of schemas.HISTORY and schemas.ANSWERS. The key is empty if every compared run is valid.
    """
    if history.empty and len(answers) < 2:
        return None
    doubtful = mark(*history["validity_before"], *history["validity_after"])
    return {
        "summary": _summary(history),
        "marks_key": MARKS_KEY if doubtful else "",
        "changes": _changes(study, history),
        "answers": _answers(study, answers),
    }


def _summary(history: pd.DataFrame) -> str:
    """How many configurations each pair of versions was compared on, with their verdicts."""
    if history.empty:
        return "No configuration was measured at two versions of its engine."
    texts = ["The same configurations at two versions of their engine."]
    for (engine, before, after), rows in history.groupby(["engine", "version_before", "version_after"], sort=False):
        counts = rows["verdict"].value_counts()
        found = ", ".join(f"{verdict} {counts[verdict]}" for verdict in _VERDICTS if verdict in counts)
        texts.append(f"{engine} {before} → {after}: {found}.")
    return " ".join(texts)


def _changes(study: StudySummary, history: pd.DataFrame) -> Table:
    label = metric_label(*study.objective.metric_and_basis)
    rows = []
    for row in history.to_dict("records"):
        workload = study.workloads.get(row["workload"], row["workload"])
        # remarks that the figures lack: a failure, failed checks, another machine
        notes = [str(row["why"])] if row["verdict"] in _FAILURES or _mark(row, "before") or _mark(row, "after") else []
        if machine := value_or_none(row["machine_changes"]):
            notes.append(f"the machine differs too: {machine}")
        note, is_good = "; ".join(notes), row["verdict"] == "better"
        verdict = Cell(str(row["verdict"]), row["run_id_after"], note, is_good=is_good)
        change = change_cell(row, None, bool(row["higher_is_better"]))
        rows.append(
            [
                Cell(str(row["candidate"]), note=workload),
                Cell(f"{row['version_before']} → {row['version_after']}", note=str(row["engine"])),
                _side(row, "before"),
                _side(row, "after"),
                replace(change, mark=_mark(row, "before", "after"), mark_why=str(row["why"])),
                verdict,
            ]
        )
    columns = ["Configuration", "Versions", f"Before ({label})", f"After ({label})", "Change", "Verdict"]
    return Table(columns, rows)


def _side(row: Mapping[Any, Any], side: str) -> Cell:
    run_id = value_or_none(row[f"run_id_{side}"])
    if row[f"outcome_{side}"] in ("failed", "refused"):
        return Cell(str(row[f"outcome_{side}"]), run_id)
    value = estimate(row[f"value_{side}"], row[f"ci95_low_{side}"], row[f"ci95_high_{side}"])
    place = value_or_none(row[f"measured_on_{side}"]) or ""
    return Cell(value, run_id, place, mark=_mark(row, side), mark_why=str(row["why"]))


def _mark(row: Mapping[Any, Any], *sides: str) -> str:
    return mark(*(row[f"validity_{side}"] for side in sides))


def _answers(study: StudySummary, answers: pd.DataFrame) -> Table:
    label = metric_label(*study.objective.metric_and_basis)
    columns = ["Versions", "Winner", f"Winner ({label})", "Against its baseline", "Measured"]
    if len(answers) < 2:
        return Table(columns, [])
    rows = []
    for row in answers.to_dict("records"):
        here = ["as the study is now"] if row["is_current"] else []
        if not row["same_question"]:
            here.append("the study differed in other ways too")
        changed = "not the winner of the row before: " if value_or_none(row["winner_changed"]) else ""
        comparable = row["metric"] == study.objective.metric and row["basis"] == study.objective.metric_and_basis[1]
        value = estimate(row["value"], row["ci95_low"], row["ci95_high"]) if comparable else "–"
        rows.append(
            [
                Cell(str(row["versions"]), note=", ".join(here)),
                Cell(str(row["candidate"]), row["run_id"], f"{changed}{row['command']}"),
                Cell(value, row["run_id"] if comparable else None),
                change_cell(dict(row), None, bool(METRICS.get(str(row["metric"])).higher_is_better)),
                Cell(str(row["measured_at"])[:10], note=value_or_none(row["measured_on"]) or ""),
            ]
        )
    return Table(columns, rows)
