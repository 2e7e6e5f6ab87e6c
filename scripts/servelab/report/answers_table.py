"""The answers that differ most from the baseline's, as a table: the question, and both texts."""

from __future__ import annotations

from typing import Any

import pandas as pd

from servelab.core.yaml_file import figure
from servelab.report.improvement_tables import SIDES
from servelab.report.page import Cell, Table, value_or_none
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES

MOST_ROWS = 12
"""Rows that a report shows; the table's files have all."""
MOST_CHARACTERS = 600
"""Characters of a text that the table shows."""


def answers_table(answers: pd.DataFrame) -> Table | None:
    """The answers that differ most, lost ones first; `answers` has the columns of schemas.STAGE_ANSWERS.

    None if none differs. A configuration's answer to a question is shown once, however often it was asked.
    """
    rows = [row for row in answers.to_dict("records") if row["run_id"] != row["baseline_run_id"]]
    rows = [row for row in rows if row["edit_share"] > 0]
    rows.sort(key=lambda row: (not _lost(row), -row["edit_share"], row["question"], row["candidate"], row["start"]))
    seen: dict[tuple[Any, ...], dict[Any, Any]] = {}
    for row in rows:
        seen.setdefault((row["candidate"], row["question"]), row)
    columns = ["Configuration", "Question", "The baseline's answer", "Its answer", "Edits per character"]
    found = [_row(row) for row in seen.values()]
    return Table(columns, found, name="answers", most=MOST_ROWS) if found else None


def _lost(row: dict[Any, Any]) -> bool:
    return row["baseline_right"] is True and row["right"] is False


def _row(row: dict[Any, Any]) -> list[Cell]:
    expected = f"right: {row['expected']}" if isinstance(row["expected"], str) else ""
    return [
        Cell(str(row["candidate"]), row["run_id"], f"{row['stage']}, {row['start']}"),
        Cell(_text(row["prompt"]), note=expected),
        Cell(_text(row["baseline_text"]), row["baseline_run_id"], _graded(row["baseline_right"])),
        Cell(_text(row["text"]), row["run_id"], _graded(row["right"])),
        Cell(f"{row['edit_share']:.2f}", value=value_or_none(row["edit_share"])),
    ]


def _graded(right: Any) -> str:
    return {True: "right", False: "wrong"}.get(right, "")


def _text(text: Any) -> str:
    """A text on one line, without what no page shows."""
    if not isinstance(text, str):
        return "(no answer)"
    shown = " ".join(text[: 2 * MOST_CHARACTERS].split())
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]}…"


_ACCEPTED, _LENGTH = "draft_acceptance_percent", "draft_accepted_length_tokens"


def answer_lines(study: StudySummary, table: pd.DataFrame, metrics: pd.DataFrame) -> list[str]:
    """Lines on each workload and side; `table` has rows of schemas.STAGE_TABLE, `metrics` those of schemas.METRICS."""
    found = table[table["stage"].isin(LAST_STAGES) & table["candidate"].isin(SIDES) & (table["outcome"] == "ok")]
    drafted = metrics[metrics["metric"].isin((_ACCEPTED, _LENGTH))].dropna(subset=["mean"])  # null: nothing was drafted
    lines = []
    for row in found.to_dict("records"):
        who = f"{SIDES[row['candidate']]}, {study.workloads[row['workload']]}"
        if pd.notna(row.get("natural_length_tokens")):
            length = figure(row["natural_length_tokens"])
            lines.append(
                f"{who}: answers end by themselves, {length} output tokens a request; so only figures of an output "
                "token are compared."
            )
        of_runs = drafted[drafted["run_id"].isin(list(row["run_ids"]))].groupby("metric")["mean"].mean()
        lines += [f"{who}: {_drafts(of_runs)}."] if _ACCEPTED in of_runs else []
    return lines


def _drafts(means: Any) -> str:
    step = f", {figure(means[_LENGTH])} tokens a step" if _LENGTH in means else ""
    return f"{figure(means[_ACCEPTED])} % of the tokens drafted ahead were accepted{step}"
