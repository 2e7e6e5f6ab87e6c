"""How long answers are that end by themselves, and how many tokens drafted ahead they took, of baseline and winner."""

from __future__ import annotations

from typing import Any

import pandas as pd

from servelab.core.number_text import figure
from servelab.report.limit_lines import SIDES
from servelab.study.study import LAST_STAGES
from servelab.study.summary import StudySummary

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
