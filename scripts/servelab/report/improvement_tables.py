"""Baseline against optimized: the headline, and the tables over all workloads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from servelab.core.yaml_file import NO_BREAK, PLACES_MARK, estimate, figure, interval, mark, metric_label, percent
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import LATENCIES, THROUGHPUT, measured, on_front
from servelab.report.charts.curves import AT, LIMITED, SHOWN
from servelab.report.page import Cell, ShownMeasurement, Table, change_cell, value_or_none
from servelab.search.recommendation_text import keep_text
from servelab.search.recommended import FROM_LOGS, BestOfWorkload, Recommended
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES

SIDES = {"baseline": "Baseline", "winner": "Optimized"}


def limit_lines(study: StudySummary, table: pd.DataFrame) -> list[str]:
    """A line for each side on the deciding workload; `table` has rows of schemas.STAGE_TABLE."""
    on = study.objective.on
    rows = table[table["stage"].isin(LAST_STAGES) & (table["workload"] == on) & (table["outcome"] == "ok")]
    return [
        f"{title}: {_text(row)}, on {study.workloads[on]}."
        for side, title in SIDES.items()
        for row in rows[rows["candidate"] == side].to_dict("records")[:1]
    ]


def _text(row: dict[Any, Any]) -> str:
    note = value_or_none(row["limit_note"]) or "the model's size is not known"
    share = value_or_none(row["share_of_limit"])
    if share is None:
        return f"no physical limit ({note})"
    limit = figure(value_or_none(row["limit_total_tokens_per_s"]))
    return f"{100 * float(share):.2g} % of what its devices can do (physical limit {limit} total tokens/s: {note})"


Row = dict[Any, Any]


@dataclass(frozen=True)
class Headline:
    """The answer in one line: a large figure, if there is one, and what it measures."""

    figure: str
    text: str
    run_id: str
    values: str = ""
    """Before and after, with what they are; empty without a figure."""


def headline(study: StudySummary, recommended: Recommended, improvements: pd.DataFrame) -> Headline:
    """The objective's change on the deciding workload, from the proof or from a recorded study's logs."""
    objective = study.objective
    title = study.workloads[objective.on]
    if not recommended.changed:
        return Headline("", keep_text(recommended), recommended.run_id)
    if recommended.proof is not None and recommended.proof.change_percent is None:
        return Headline("", recommended.proof.why, recommended.run_id)
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
    values = f"{figure(row['baseline_value'])} → {figure(row['value'])}"
    used = recommended.served_on or f"{recommended.configuration.accelerators} × {study.hardware.accelerator}"
    label = metric_label(objective.metric, basis)
    by = recommended.proof.candidate if recommended.proof else None
    by = by or f"{recommended.engine} {recommended.engine_version}"
    text = f"On {title}: by {by} on {used}, against the baseline ({interval(low, high)})"
    if recommended.evidence == FROM_LOGS:
        text += f", {FROM_LOGS}"
    unit = label[:1].lower() + label[1:] if label[1:2].islower() else label
    return Headline(percent(value), text, recommended.run_id, f"{values} {unit}{extrapolated}")


def place_warning(recommended: Recommended) -> str:
    """Differences between the places of the runs that the answer compares; empty if there are none."""
    gains = recommended.proof.workloads if recommended.proof else recommended.improvements
    promised = recommended.proof and recommended.proof.promised_unequal_places
    found = dict.fromkeys(each.unequal_places for each in gains if each.unequal_places)
    if promised:
        found[f"what the search promised: {promised}"] = None
    return " / ".join(found)


def objective_table(
    study: StudySummary,
    recommended: Recommended,
    improvements: pd.DataFrame,
    measured: ShownMeasurement,
    table: pd.DataFrame,
) -> Table:
    """The objective as run on every workload; also per accelerator and per node where those figures differ."""
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
    comparison = table[table["stage"].isin(LAST_STAGES)]
    runs = _runs(comparison)
    for workload, title in study.workloads.items():
        cells = [Cell(title, note=workload)]
        sides = comparison[comparison["workload"] == workload]
        if workload in as_run:
            row = as_run[workload]
            cells += [*_values(row, measured, runs), _change(row)]
            cells += [_other_basis(basis_rows[workload], label) for basis_rows in others.values()]
        else:
            cells += _only_baseline(sides, metric, measured)
            cells += [Cell("–", note=failures.get(workload) or "")] + [Cell("–") for _ in others]
        cells.append(measured.counts(*(list(of_side) for of_side in sides[sides["outcome"] == "ok"]["run_ids"])))
        rows.append(cells)
    return Table([*columns, "n"], rows, name="objective")


def other_metrics_table(
    study: StudySummary, improvements: pd.DataFrame, measured: ShownMeasurement, table: pd.DataFrame
) -> Table:
    """Every other metric as run, workload by workload."""
    chosen = improvements[
        improvements["stage"].isin(LAST_STAGES)
        & (improvements["basis"] == "deployment")
        & (improvements["metric"] != study.objective.metric)
    ]
    runs = _runs(table[table["stage"].isin(LAST_STAGES)])
    order = {workload: position for position, workload in enumerate(study.workloads)}
    records = sorted(chosen.to_dict("records"), key=lambda row: order[row["workload"]])
    rows = [
        [
            Cell(metric_label(row["metric"]), note=study.workloads[row["workload"]]),
            *_values(row, measured, runs),
            _change(row),
            measured.counts(*(runs.get(row[run], [row[run]]) for run in ("baseline_run_id", "run_id"))),
        ]
        for row in records
    ]
    return Table(["Metric", "Baseline", "Optimized", "Change", "n"], rows, name="other-metrics")


def accelerators_text(study: StudySummary, table: pd.DataFrame) -> str:
    """How many accelerators of a node each side used, and what that means for figures per accelerator and per node."""
    comparison = table[table["stage"].isin(LAST_STAGES)]
    counts = {row["candidate"]: int(row["accelerators"]) for row in comparison.to_dict("records")}
    node = study.hardware.per_node
    if set(counts.values()) == {node} == {1}:
        return "A node has one accelerator: figures per accelerator and per node equal those of the deployment."
    used = f"Baseline and optimized configuration each used {counts['baseline']} of a node's {node} accelerators."
    if len(set(counts.values())) > 1:
        used = (
            f"The baseline used {counts['baseline']} of a node's {node} accelerators, the optimized configuration "
            f"{counts['winner']}."
        )
    if METRICS.get(study.objective.metric).is_rate and any(node // count > 1 for count in counts.values()):
        used += (
            " Figures per node are extrapolated: one deployment × the number that fits on a node. Nothing that large "
            "was run."
        )
    return used


def _rows(improvements: pd.DataFrame, metric: str, basis: str) -> dict[str, Row]:
    chosen = improvements[
        improvements["stage"].isin(LAST_STAGES) & (improvements["metric"] == metric) & (improvements["basis"] == basis)
    ]
    return {row["workload"]: row for row in chosen.to_dict("records")}


def _is_scaled(rows: dict[str, Row]) -> bool:
    """True if figures on a basis differ from those of the deployments as run."""
    return any(row["factor"] != 1 or row["baseline_factor"] != 1 for row in rows.values())


def _runs(comparison: pd.DataFrame) -> dict[str, list[str]]:
    """First run of each side on a workload → all its runs."""
    return {row["run_id"]: list(row["run_ids"]) for row in comparison.to_dict("records")}


def _values(row: Row, measured: ShownMeasurement, runs: dict[str, list[str]]) -> list[Cell]:
    """Both sides as run, each with the interval over its own starts."""
    sides = (("baseline_run_id", "baseline_value"), ("run_id", "value"))
    return [measured.cell(runs.get(row[run], [row[run]]), row["metric"], row[value]) for run, value in sides]


def _change(row: Row) -> Cell:
    cell = change_cell(row, row["run_id"], bool(row["higher_is_better"]), row["baseline_run_id"])
    differs = value_or_none(row["unequal_places"])
    return replace(cell, mark=PLACES_MARK, mark_why=f"not measured at one place: {differs}") if differs else cell


def _other_basis(row: Row, label: str) -> Cell:
    values = f"{figure(row['baseline_value'])} → {figure(row['value'])} {label[:1].lower()}{label[1:]}"
    extrapolated = (
        f", extrapolated (×{NO_BREAK}{row['factor']:g})" if row["extrapolated"] and row["factor"] != 1 else ""
    )
    cell = _change(row)
    return replace(cell, note=f"{cell.note}; {values}{extrapolated}")


def _only_baseline(sides: pd.DataFrame, metric: str, measured: ShownMeasurement) -> list[Cell]:
    """Baseline and winner if they cannot be compared: what was measured, or `failed`."""
    cells = []
    for candidate in ("baseline", "winner"):
        rows = sides[sides["candidate"] == candidate].to_dict("records")
        if not rows:
            cells.append(Cell("–"))
        elif rows[0]["outcome"] != "ok":
            cells.append(Cell("failed", rows[0]["run_id"], str(rows[0]["reason"]).replace("_", " ")))
        else:
            cells.append(measured.cell(list(rows[0]["run_ids"]), metric))
    return cells


def front_table(search: pd.DataFrame, figures: ShownMeasurement) -> Table:
    """A row for each run on the front of a latency, lowest latency first; `search` as in the chart."""
    runs = measured(search)
    fronts = {column: on_front(runs[runs[column].notna()], column) for column in LATENCIES}
    on = {column: set(front.index[front]) for column, front in fronts.items()}
    shown = runs[runs.index.isin(set().union(*on.values()))].sort_values([*LATENCIES], kind="stable")
    rows = [
        [
            Cell(row["candidate"], row["run_id"], str(row["stage_title"]), is_good=row["role"] == "Winner"),
            Cell(figure(row[THROUGHPUT]), row["run_id"], value=row[THROUGHPUT]),
            *(figures.cell(list(row["run_ids"]), column.removesuffix("_mean"), row[column]) for column in LATENCIES),
            Cell(" and ".join(LATENCIES[c].split()[1] for c in LATENCIES if index in on[c])),
        ]
        for index, row in shown.iterrows()
    ]
    return Table(["Candidate", "Total tokens/s per accelerator", *LATENCIES.values(), "On the front of"], rows, "front")


_LATENCIES = {name: title for name, title in SHOWN.items() if name in LIMITED}


def curves_table(curves: pd.DataFrame, repeats: str = "Starts") -> Table:
    """A row for each configuration and point; `curves` has the columns of schemas.CURVES.

    `repeats` is the heading of the numbers of server starts, or of logs.
    """
    rows = [_row(row) for row in curves.to_dict("records")]
    columns = ["Configuration", "Load", "Total tokens/s, as run", "Requests/s", *_LATENCIES.values(), repeats]
    return Table(columns, rows, name="curves")


def _row(row: dict[Any, Any]) -> list[Cell]:
    load = f"{row['curve']}: {AT[row['load']].format(row['level'])}"
    head = [
        Cell(str(row["candidate"]), row["run_id"], str(row["stage"]), is_good=row["candidate"] == "winner"),
        Cell(load, note="the point that decides" if row["decides"] else ""),
    ]
    if row["outcome"] != "ok":
        why = "saturated at a lower rate: not sent" if row["outcome"] == "saturated" else f"failed: {row['reason']}"
        return [*head, Cell(why), *(Cell("–") for _ in range(len(_LATENCIES) + 1)), Cell(f"{row['starts']}")]
    value, low, high = (value_or_none(row[f"total_tokens_per_s{end}"]) for end in ("", "_ci95_low", "_ci95_high"))
    figures = [Cell(figure(row[name]), row["run_id"], value=row[name]) for name in ("requests_per_s", *_LATENCIES)]
    total = Cell(estimate(value, low, high), row["run_id"], value=value, mark=mark(row["validity"]))
    return [*head, total, *figures, Cell(f"{row['starts']}")]


@dataclass(frozen=True)
class GuardSection:
    """The report's tables for each workload."""

    verdict: str
    losses: list[str]
    """Workloads on which the winner loses more than the study allows, with the figures."""
    best: list[BestOfWorkload]
    """The configuration to use on each workload; empty if it is the winner on all."""


def guard_section(recommended: Recommended) -> GuardSection | None:
    """None for a study with one workload, which has no other to compare with."""
    if len(recommended.by_workload) < 2:
        return None
    losses = [f"{row.title}: {row.guard_why}" for row in recommended.improvements if row.guard == "loses"]
    unclear = [row.title for row in recommended.improvements if row.guard == "unclear"]
    differs = any(not best.is_recommended for best in recommended.by_workload)
    most = f"{recommended.max_loss_percent:g} %"
    if not recommended.changed:
        verdict = "Use the baseline on every workload."
    elif losses:
        count = f"{len(losses)} workload{'' if len(losses) == 1 else 's'}"
        verdict = f"The optimized configuration loses more than {most} on {count}."
    else:
        verdict = f"The optimized configuration loses more than {most} on no workload."
    if unclear:
        verdict += f" Noise is too large to decide on {', '.join(unclear)}."
    return GuardSection(verdict, losses, recommended.by_workload if differs else [])


def capacity_lines(study: StudySummary, table: pd.DataFrame) -> list[str]:
    """A line for each side and workload whose load was searched; `table` has rows of schemas.STAGE_TABLE."""
    if "capacity_note" not in table:
        return []
    rows = table[table["stage"].isin(LAST_STAGES) & table["capacity_note"].notna()].to_dict("records")
    return [
        f"{title}, {study.workloads[row['workload']]}: why the search for the capacity ended: {row['capacity_note']}."
        for side, title in SIDES.items()
        for row in rows
        if row["candidate"] == side
    ]


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
    found = [_answers_table_row(row) for row in seen.values()]
    return Table(columns, found, name="answers", most=MOST_ROWS) if found else None


def _lost(row: dict[Any, Any]) -> bool:
    return row["baseline_right"] is True and row["right"] is False


def _answers_table_row(row: dict[Any, Any]) -> list[Cell]:
    expected = f"right: {row['expected']}" if isinstance(row["expected"], str) else ""
    return [
        Cell(str(row["candidate"]), row["run_id"], f"{row['stage']}, {row['start']}"),
        Cell(_answers_table_text(row["prompt"]), note=expected),
        Cell(_answers_table_text(row["baseline_text"]), row["baseline_run_id"], _graded(row["baseline_right"])),
        Cell(_answers_table_text(row["text"]), row["run_id"], _graded(row["right"])),
        Cell(f"{row['edit_share']:.2f}", value=value_or_none(row["edit_share"])),
    ]


def _graded(right: Any) -> str:
    return {True: "right", False: "wrong"}.get(right, "")


def _answers_table_text(text: Any) -> str:
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
