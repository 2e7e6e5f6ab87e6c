"""Guard workloads: where the winner loses, and which measured configuration is best on each workload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from servelab.decide import Row, compare, relative_change, unfit
from servelab.metrics import METRICS
from servelab.searched import SearchedStudy
from servelab.study import COMPARISON

BASELINE, WINNER = "baseline", "winner"
CHANGE = ("change_percent", "change_ci95_low_percent", "change_ci95_high_percent")


def guard(study: SearchedStudy, table: pd.DataFrame, workload: str, change: Mapping[str, Any]) -> tuple[str, str]:
    """Whether the winner holds its ground on a workload, and why: `holds`, `loses`, or `unclear`.

    `table` is the comparison's stage table, `change` has the columns `CHANGE` of the winner against the baseline there,
    nulls where they cannot be compared. It `loses` where its loss is larger than `objective.max_loss_percent` and
    beyond noise, or where it gives nothing valid and the baseline does; it is `unclear` where the change's 95 %
    interval reaches below that loss. Without an interval the change alone speaks.
    """
    most = study.objective.max_loss_percent
    sides = {row["candidate"]: row for row in _rows(table) if row["workload"] == workload}
    wrong = {name: unfit(study, row) for name, row in sides.items()}
    if wrong.get(WINNER) or wrong.get(BASELINE):
        name = WINNER if wrong.get(WINNER) and not wrong.get(BASELINE) else BASELINE
        said = wrong[name]
        return ("loses" if name == WINNER else "unclear"), f"the {name}: {said[1] if said else ''}"
    value, low, high = (change[name] for name in CHANGE)
    if value is None:
        return "unclear", "the two cannot be compared"
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    if low is None or high is None:
        return ("loses" if sign * value < -most else "holds"), f"{value:+.1f} %, no interval"
    text = f"{value:+.1f} % (95 % interval {low:+.1f} to {high:+.1f} %)"
    if sign * value < -most and not low <= 0 <= high:
        return "loses", text
    reaches = min(sign * low, sign * high) < -most
    return ("unclear", f"{text} reaches below a loss of {most:g} %") if reaches else ("holds", text)


def best_by_workload(
    study: SearchedStudy, table: pd.DataFrame, rounds: pd.DataFrame, titles: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The configuration to use on each workload, of those that were measured there; a workload with none is left out.

    `table` and `rounds` are those of all stages. The winner stays unless another is better beyond noise and margin, as
    in a stage's decision; on the workload that decides it always stays. The change is against the winner's run.
    """
    # the comparison first: a run that a stage shares with it has its name there
    rows = sorted(_rows(table), key=lambda row: row["stage"] != COMPARISON)
    winner_name = WINNER if any(_name(row) == WINNER for row in rows) else BASELINE
    found = []
    for workload in study.workloads:
        measured: dict[str, Row] = {}
        for row in rows:
            if row["workload"] == workload and unfit(study, row) is None:
                measured.setdefault(row["run_id"], row)
        runs = list(measured.values())
        if runs:
            winner = next((row for row in runs if _name(row) == winner_name), None)
            best, why, change = _best(study, winner, runs, rounds, decides=workload == study.objective.on)
            found.append(
                {
                    "workload": workload,
                    "title": titles[workload],
                    "candidate": _name(best),
                    "is_winner": winner is not None and best["run_id"] == winner["run_id"],
                    "why": why,
                    "engine": best["engine"],
                    "engine_version": best["engine_version"],
                    "command": best["command"],
                    "run_id": best["run_id"],
                    "value": float(best["objective_value"]),
                    **dict(zip(CHANGE, map(_finite, change), strict=True)),
                }
            )
    return found


Change = tuple[float | None, float | None, float | None]
_NONE: Change = (None, None, None)


def _best(
    study: SearchedStudy, winner: Row | None, runs: list[Row], rounds: pd.DataFrame, *, decides: bool
) -> tuple[Row, str, Change]:
    """The best run, why, and its change against the winner's."""
    sign = 1 if METRICS.get(study.objective.metric).higher_is_better else -1
    if winner is None:
        return max(runs, key=lambda row: sign * row["objective_value"]), "the winner has no valid run here", _NONE
    if decides:
        return winner, "the workload that decides", _NONE
    better = {}
    for row in runs:
        if row["run_id"] != winner["run_id"] and winner["objective_value"] > 0:
            change = relative_change(study, row, winner, rounds)
            verdict, why = compare(study, *change)
            if verdict == "better":
                better[row["run_id"]] = (row, f"{why} against the winner", change)
    if not better:
        return winner, "no other that was measured here is better beyond noise and margin", _NONE
    return max(better.values(), key=lambda found: sign * found[0]["objective_value"])


def _name(row: Row) -> str:
    """`winner` or `baseline`, or a stage's candidate as `<stage>/<candidate>`."""
    return str(row["candidate"]) if row["stage"] == COMPARISON else f"{row['stage']}/{row['candidate']}"


def _rows(table: pd.DataFrame) -> list[Row]:
    return table.to_dict("records")  # type: ignore[return-value]


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None
