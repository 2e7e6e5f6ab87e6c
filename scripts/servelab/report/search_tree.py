"""The search as a tree: every candidate of every stage, and its cost. The templates `search_tree.*.j2` show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from servelab.core.yaml_file import duration, percent
from servelab.report.page import value_or_none

Row = dict[Any, Any]

SHARED = "A run that several stages use was measured once and counts for the first of them."
UNDER_LOAD = "Under load is from the start of a round to its last answer; the rest is start-up, warm-up and stopping."
ONLY_LOAD = "The logs give the duration of a load, not the time of the server's start."


@dataclass(frozen=True)
class TreeCandidate:
    """A leaf: one candidate of a stage."""

    name: str
    is_winner: bool
    outcome: str
    """`tried`, `suspect`, … as schemas.SEARCH has it."""
    said: str
    """Verdict and reason."""
    cost: str
    run_ids: list[str]
    shared: str
    """Candidates that share its runs; empty if there are none."""


@dataclass(frozen=True)
class TreeStage:
    """A branch: one stage, with the outcomes of its candidates and its cost."""

    name: str
    title: str
    counts: str
    cost: str
    candidates: list[TreeCandidate]


@dataclass(frozen=True)
class SearchTree:
    """The whole search."""

    summary: str
    remark: str
    stages: list[TreeStage]


def search_tree(search: pd.DataFrame, is_recorded: bool = False) -> SearchTree:
    """`search` has rows of schemas.SEARCH. Recorded logs give only the time under load."""
    rows: list[Row] = search.to_dict("records")
    stages = [
        _stage([row for row in rows if row["stage"] == stage], is_recorded)
        for stage in dict.fromkeys(row["stage"] for row in rows)
    ]
    runs = {run_id for row in rows for run_id in row["run_ids"]}
    cost = _cost(*_sums(rows), is_recorded)
    return SearchTree(
        summary=f"{_number(len(rows), 'candidate')} in {_number(len(stages), 'stage')}: {_counts(rows)}. "
        f"{_number(len(runs), 'run')}{f', {cost}' if cost else ''}.",
        remark=f"{SHARED} {ONLY_LOAD if is_recorded else UNDER_LOAD}",
        stages=stages,
    )


def _stage(rows: list[Row], is_recorded: bool) -> TreeStage:
    held_s, load_s = _sums(rows)
    nothing = "nothing new was measured" if any(len(row["run_ids"]) for row in rows) else ""
    return TreeStage(
        name=rows[0]["stage"],
        title=rows[0]["stage_title"],
        counts=_counts(rows),
        cost=_cost(held_s, load_s, is_recorded) or nothing,
        candidates=[_candidate(row, is_recorded) for row in rows],
    )


def _candidate(row: Row, is_recorded: bool) -> TreeCandidate:
    verdict, reason = value_or_none(row["verdict"]), value_or_none(row["reason"])
    said = [text for text in (verdict if verdict != row["outcome"] else None, reason) if text]
    held_s, load_s = (value_or_none(row[name]) or 0.0 for name in ("accelerator_s", "load_accelerator_s"))
    shared = list(row["shared_with"])
    return TreeCandidate(
        name=row["candidate"],
        is_winner=verdict == "winner",
        outcome=row["outcome"],
        said=": ".join(said),
        cost=_cost(held_s, load_s, is_recorded),
        run_ids=list(row["run_ids"]),
        shared=f"shared with {', '.join(shared)}" if shared else "",
    )


def _sums(rows: list[Row]) -> tuple[float, float]:
    columns = ("new_accelerator_s", "new_load_accelerator_s")
    held_s, load_s = (sum(value_or_none(row[name]) or 0.0 for row in rows) for name in columns)
    return held_s, load_s


def _cost(held_s: float, load_s: float, is_recorded: bool) -> str:
    """`12 min of accelerator time, 61 % of it under load`; empty if no accelerator was reserved."""
    if not held_s:
        return ""
    if is_recorded:
        return f"{duration(load_s)} of accelerator time under load"
    return f"{duration(held_s)} of accelerator time, {percent(100 * load_s / held_s, signed=False)} of it under load"


def _counts(rows: list[Row]) -> str:
    """`3 tried, 1 failed`."""
    outcomes = Counter(row["outcome"] for row in rows)
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())


def _number(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"
