"""The study's answer: the serving command to use, and what it gains on every workload."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from servelab.figures import mark
from servelab.guards import best_by_workload, guard
from servelab.searched import SearchedPlan, SearchedStudy


def recommend(
    study: SearchedStudy,
    comparison: SearchedPlan,
    tables: pd.DataFrame,
    rounds: pd.DataFrame,
    improvements: pd.DataFrame,
    runs_folder: Path | None,
    titles: dict[str, str],
) -> dict[str, Any]:
    """The content of `recommended.json`.

    `tables` and `rounds` are those of all stages, the comparison's among them, `improvements` the study's; `titles`
    gives each workload's title. Where the baseline itself is best, the baseline is recommended and there are no
    improvements. `runs_folder` holds the runs, or is None where nothing ran here.
    """
    table = tables[tables["stage"] == comparison.stage]
    winner = comparison.candidates[-1]
    run_of = {run.workload: run.run_id for run in winner.runs}
    baseline_run_of = {run.workload: run.run_id for run in comparison.candidates[0].runs}
    deciding = study.objective.on
    metric, basis = study.objective.metric_and_basis
    gains = improvements[
        (improvements["stage"] == comparison.stage)
        & (improvements["metric"] == metric)
        & (improvements["basis"] == basis)
    ]
    rows = []
    for workload in study.workloads:
        of_workload = gains[gains["workload"] == workload].to_dict("records")
        failed = table[(table["workload"] == workload) & (table["outcome"] != "ok")]
        if of_workload:
            row = _improvement(of_workload[0], titles[workload], table)
        elif not failed.empty:
            row = _no_improvement(workload, titles[workload], study, _failures(failed))
        else:
            continue
        word, why = guard(study, table, workload, row)
        rows.append(row | _validity(table, comparison, workload) | {"guard": word, "guard_why": why})
    return {
        "study": study.study,
        "command": winner.command,
        "launch_command": runs_folder and _launch_command(runs_folder / run_of[deciding] / "manifest.json"),
        "note": _note(winner.configuration.model),
        "engine": study.engines[winner.configuration.engine].engine or winner.configuration.engine,
        "engine_version": study.engines[winner.configuration.engine].version,
        "model": study.model.variant_id(winner.configuration.model),
        "environment_variables": winner.configuration.environment_variables,
        "configuration": winner.configuration.model_dump(mode="json"),
        "changed": len(comparison.candidates) > 1,
        "objective": study.objective.metric,
        "per": basis,
        "improvements": rows,
        "max_loss_percent": study.objective.max_loss_percent,
        "by_workload": best_by_workload(study, tables, rounds, titles),
        **_validity(table, comparison, deciding),
        "run_id": run_of[deciding],
        "baseline_run_id": baseline_run_of[deciding],
    }


def _note(variant: str) -> str | None:
    """What has to be said of other weights than the model's own."""
    if variant == "base":
        return None
    return f"It serves the variant {variant} of the weights: speed was measured, the quality of the answers was not."


def _launch_command(path: Path) -> str:
    """The command as it ran, its environment variables in front, from its manifest."""
    manifest = json.loads(path.read_text(encoding="utf-8"))
    variables = [f"{name}={value}" for name, value in sorted(manifest["environment_variables"].items())]
    return shlex.join([*(["env", *variables] if variables else []), *manifest["command"]])


def _improvement(row: Mapping[Any, Any], title: str, table: pd.DataFrame) -> dict[str, Any]:
    rounds = int(table[table["run_id"].isin([row["run_id"], row["baseline_run_id"]])]["rounds"].min())
    numbers = ["baseline_value", "value", "change_percent", "change_ci95_low_percent", "change_ci95_high_percent"]
    return {
        "workload": row["workload"],
        "title": title,
        "metric": row["metric"],
        "basis": row["basis"],
        "extrapolated": bool(row["extrapolated"]),
        **{name: _finite(row[name]) for name in numbers},
        "n": rounds,
        "failed": None,
    }


def _finite(value: float) -> float | None:
    """JSON has neither NaN nor infinity: null where there is no bound."""
    return float(value) if math.isfinite(value) else None


def _validity(table: pd.DataFrame, comparison: SearchedPlan, workload: str) -> dict[str, Any]:
    """What the checks made of the winner's and of the baseline's run on a workload; nulls where a run failed."""
    found: dict[str, Any] = {}
    for side, candidate in (("", comparison.candidates[-1]), ("baseline_", comparison.candidates[0])):
        run = table[(table["candidate"] == candidate.candidate) & (table["workload"] == workload)].iloc[0]
        for column in ("validity", "validity_note"):
            found[f"{side}{column}"] = None if pd.isna(run[column]) else run[column]
    return found


def _no_improvement(workload: str, title: str, study: SearchedStudy, failed: str) -> dict[str, Any]:
    numbers = ["baseline_value", "value", "change_percent", "change_ci95_low_percent", "change_ci95_high_percent"]
    return {
        "workload": workload,
        "title": title,
        "metric": study.objective.metric,
        "basis": study.objective.metric_and_basis[1],
        "extrapolated": False,
        **dict.fromkeys(numbers),
        "n": 0,
        "failed": failed,
    }


def _failures(failed: pd.DataFrame) -> str:
    return "; ".join(f"{row['candidate']}: {row['reason']}: {row['message']}" for _, row in failed.iterrows())


def render_recommendation(recommended: dict[str, Any], report: Path) -> str:
    """The recommendation as a few lines for a terminal."""
    lines = [f"{recommended['study']}: recommended serving command", "", f"    {recommended['command']}", ""]
    lines += [recommended["note"], ""] if recommended["note"] else []
    lines += (
        ["As it ran here:", "", f"    {recommended['launch_command']}", ""] if recommended["launch_command"] else []
    )
    if not recommended["changed"]:
        lines.append("No candidate beat the baseline beyond noise and margin: keep the baseline.")
    else:
        width = max((len(row["title"]) for row in recommended["improvements"]), default=0)
        lines.append(f"Against the baseline ({recommended['objective']} per {recommended['per']}):")
        lines += [f"    {row['title']:<{width}}  {_gain(row)}" for row in recommended["improvements"]]
        lines += _losses(recommended)
    lines += _elsewhere(recommended)
    lines += _doubts(recommended)
    return "\n".join([*lines, "", f"Report: {report}"])


def _losses(recommended: dict[str, Any]) -> list[str]:
    """Where the winner loses more than the study allows."""
    lost = [row for row in recommended["improvements"] if row["guard"] == "loses"]
    lines = [f"    {row['title']}: {row['guard_why']}" for row in lost]
    most = recommended["max_loss_percent"]
    return ["", f"It loses more than {most:g} % on {_workloads(len(lost))}:", *lines] if lines else []


def _elsewhere(recommended: dict[str, Any]) -> list[str]:
    """What to use instead on workloads where another configuration was measured to be better."""
    lines = []
    for row in recommended["by_workload"]:
        if not row["is_winner"]:
            lines += [f"    {row['title']}: {row['candidate']} ({row['why']})", f"        {row['command']}"]
    return ["", "Better where a workload is all you serve:", *lines] if lines else []


def _workloads(count: int) -> str:
    return f"{count} workload{'' if count == 1 else 's'}"


def _doubts(recommended: dict[str, Any]) -> list[str]:
    """Which runs behind the figures are not valid, and why."""
    lines = []
    sides = (("baseline_", "baseline"), ("", "optimized")) if recommended["changed"] else (("", "baseline"),)
    for row in recommended["improvements"] or [{**recommended, "title": "Deciding workload"}]:
        for side, name in sides:
            if sign := mark(row[f"{side}validity"]):
                lines.append(
                    f"    {sign} {row['title']}, {name}: {row[f'{side}validity']}: {row[f'{side}validity_note']}"
                )
    return ["", "What the checks found:", *lines] if lines else []


def _gain(row: dict[str, Any]) -> str:
    if row["failed"]:
        return f"not comparable: {row['failed']}"
    before, after = (mark(row[name]) for name in ("baseline_validity", "validity"))
    text = f"{row['baseline_value']:>10.1f}{before} -> {row['value']:>10.1f}{after}   {row['change_percent']:+7.1f} %"
    if row["extrapolated"]:
        text += "   extrapolated"
    low, high = row["change_ci95_low_percent"], row["change_ci95_high_percent"]
    if low is None or high is None:
        return f"{text}   (no interval: a single round, or rounds too far apart)"
    noise = "   within noise" if low <= 0 <= high else ""
    return f"{text}   (95 % interval {low:+.1f} to {high:+.1f} %, n = {row['n']}){noise}"
