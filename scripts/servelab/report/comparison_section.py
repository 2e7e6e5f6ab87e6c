"""Baseline against optimized: the objective and every other metric on every workload, and what explains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from servelab.core.figure_text import NO_BREAK, PLACES_MARK, estimate, figure, mark, metric_label
from servelab.metrics.definitions import METRICS
from servelab.report.bottlenecks import Counters, counters_of, counters_text, limited_by
from servelab.report.charts.curves import AT, LIMITED, SHOWN
from servelab.report.page import Cell, ShownMeasurement, Table, change_cell, value_or_none
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary
from servelab.study.study import LAST_STAGES

Row = dict[Any, Any]
SIDES = {"baseline": "Baseline", "winner": "Optimized"}


def front_table(recommended: Recommended, second: Recommended) -> Table:
    """What no other configuration of the search beats by both objectives."""
    labels = [metric_label(each.objective, each.per) for each in (recommended, second)]
    rows = [
        [Cell(point.candidate, point.run_id), Cell(figure(point.value)), Cell(figure(point.second_value))]
        for point in recommended.front
    ]
    return Table(["In the search", *labels], rows)


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
    others = {
        basis: found
        for basis, found in scaled.items()
        if any({row["factor"], row["baseline_factor"]} != {1} for row in found.values())
    }
    rows: list[list[Cell]] = []
    failures = {entry.workload: entry.failed for entry in recommended.improvements}
    comparison = table[table["stage"].isin(LAST_STAGES)]
    runs = _runs(comparison)
    for workload, title in study.workloads.items():
        sides = comparison[comparison["workload"] == workload]
        if row := as_run.get(workload):
            cells = [*_values(row, measured, runs), _change(row)]
            cells += [_other_basis(basis_rows[workload], label) for basis_rows in others.values()]
        else:
            cells = [*_not_compared(sides, metric, measured), Cell("–", note=failures.get(workload) or "")]
            cells += [Cell("–") for _ in others]
        counts = measured.counts(*(list(of_side) for of_side in sides[sides["outcome"] == "ok"]["run_ids"]))
        rows.append([Cell(title, note=workload), *cells, counts])
    bases = [f"Per {basis}" for basis in others]
    return Table(["Workload", f"Baseline ({label})", f"Optimized ({label})", "Change", *bases, "n"], rows)


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
    return Table(["Metric", "Baseline", "Optimized", "Change", "n"], rows)


def accelerators_text(study: StudySummary, table: pd.DataFrame) -> str:
    """How many accelerators of a node each side used, and what that means for figures per accelerator and per node."""
    comparison = table[table["stage"].isin(LAST_STAGES)]
    counts = {row["candidate"]: int(row["accelerators"]) for row in comparison.to_dict("records")}
    node = study.hardware.per_node
    if set(counts.values()) == {node} == {1}:
        return "A node has one accelerator: figures per accelerator and per node equal those of the deployment."
    winner = counts.get("winner", counts["baseline"])
    used = f"The baseline used {counts['baseline']} of a node's {node} accelerators, the optimized one {winner}."
    if METRICS.get(study.objective.metric).is_rate and any(node // count > 1 for count in counts.values()):
        used += " Figures per node are extrapolated: one deployment × as many as fit. Nothing that large was run."
    return used


def _rows(improvements: pd.DataFrame, metric: str, basis: str) -> dict[str, Row]:
    chosen = improvements[
        improvements["stage"].isin(LAST_STAGES) & (improvements["metric"] == metric) & (improvements["basis"] == basis)
    ]
    return {row["workload"]: row for row in chosen.to_dict("records")}


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
    cell, is_scaled = _change(row), row["extrapolated"] and row["factor"] != 1
    extrapolated = f", extrapolated (×{NO_BREAK}{row['factor']:g})" if is_scaled else ""
    return replace(cell, note=f"{cell.note}; {values}{extrapolated}")


def _not_compared(sides: pd.DataFrame, metric: str, measured: ShownMeasurement) -> list[Cell]:
    """Baseline and winner if they cannot be compared: what was measured, or `failed`."""
    cells = []
    for candidate in SIDES:
        rows = sides[sides["candidate"] == candidate].to_dict("records")
        if not rows:
            cells.append(Cell("–"))
        elif rows[0]["outcome"] != "ok":
            cells.append(Cell("failed", rows[0]["run_id"], str(rows[0]["reason"]).replace("_", " ")))
        else:
            cells.append(measured.cell(list(rows[0]["run_ids"]), metric))
    return cells


def limits_by_side(
    study: StudySummary, table: pd.DataFrame, metrics: pd.DataFrame, series: pd.DataFrame
) -> dict[str, Counters]:
    """The counters of each side's first run on the workload that decides, from rows of schemas.DEVICE_SERIES."""
    rows = table[table["stage"].isin(LAST_STAGES) & (table["workload"] == study.objective.on)]
    means, sent = _means(metrics), study.protocol.max_concurrency if study.protocol else None
    limit, found = study.loads.get(study.objective.on, {}).get("max_concurrency", sent), {}
    for row in rows[rows["outcome"] == "ok"].to_dict("records"):
        by = study.objective.sharing(int(row["accelerators"]), int(row["accelerators_per_node"]))
        most = limit // by if isinstance(limit, int) else None  # `inf` is no limit
        found[row["candidate"]] = counters_of(row["run_id"], series, means, most)
    return found


def sides_table(
    study: StudySummary,
    table: pd.DataFrame,
    metrics: pd.DataFrame,
    counters: Mapping[str, Counters],
) -> Table:
    """The facts that explain the figures of baseline and winner: a row for each.

    `table` has rows of schemas.STAGE_TABLE, `metrics` those of schemas.METRICS, `counters` those of each side. The
    first facts are those of the workload that decides.
    """
    means = _means(metrics)
    found: list[tuple[str, str, list[str]]] = []
    for name, words in (("Limited by", limited_by), ("Counters", counters_text)):
        texts = [words(counters[side]) if side in counters else "" for side in SIDES]
        found.append((name, study.objective.on, texts))
    for workload in sorted(study.workloads, key=lambda name: name != study.objective.on):
        rows = table[table["stage"].isin(LAST_STAGES) & (table["workload"] == workload) & (table["outcome"] == "ok")]
        by_side = {row["candidate"]: row for row in rows.to_dict("records")}
        for name, fact in _FACTS.items() if workload == study.objective.on else list(_FACTS.items())[_OF_A_SERVER:]:
            found.append((name, workload, [fact(by_side[side], means) if side in by_side else "" for side in SIDES]))
    cells = [
        [Cell(name, note=study.workloads[workload]), *(Cell(text or "–") for text in texts)]
        for name, workload, texts in found
        if any(texts)
    ]
    return Table(["Fact", *SIDES.values()], cells)


def _means(metrics: pd.DataFrame) -> dict[Any, float]:
    found: dict[Any, float] = metrics.dropna(subset=["mean"]).groupby(["run_id", "metric"])["mean"].mean().to_dict()
    return found


def _startup(row: Row, means: Mapping[Any, float]) -> str:
    value, low, high = (value_or_none(row.get(f"startup_s{end}")) for end in ("", "_ci95_low", "_ci95_high"))
    return "" if value is None else f"{estimate(value, low, high)} s"


def _limit(row: Row, means: Mapping[Any, float]) -> str:
    share, note = value_or_none(row.get("share_of_limit")), value_or_none(row.get("limit_note"))
    if share is None:
        return note or ""
    limit = figure(value_or_none(row["limit_total_tokens_per_s"]))
    return f"{100 * float(share):.2g} % of {limit} total tokens/s ({note})"


def _natural_length(row: Row, means: Mapping[Any, float]) -> str:
    length = value_or_none(row.get("natural_length_tokens"))
    return "" if length is None else f"{figure(length)} output tokens; only figures of an output token are compared"


def _drafts(row: Row, means: Mapping[Any, float]) -> str:
    accepted, length = (_mean(row, means, f"draft_{name}") for name in ("acceptance_percent", "accepted_length_tokens"))
    if accepted is None:
        return ""
    return f"{figure(accepted)} % accepted{'' if length is None else f', {figure(length)} tokens a step'}"


def _mean(row: Row, means: Mapping[Any, float], metric: str) -> float | None:
    values = [value for run_id in row["run_ids"] if (value := means.get((run_id, metric))) is not None]
    return sum(values) / len(values) if values else None


_OF_A_SERVER = 2
"""The first of the facts are the same, or nearly, on every workload."""
_FACTS = {
    "Start-up": _startup,
    "Share of the physical limit": _limit,
    "Why the search for capacity ended": lambda row, means: value_or_none(row.get("capacity_note")) or "",
    "Answers that end by themselves": _natural_length,
    "Tokens drafted ahead": _drafts,
}


_LATENCIES = {name: title for name, title in SHOWN.items() if name in LIMITED}


def curves_table(curves: pd.DataFrame, repeats: str = "Starts") -> Table:
    """A row for each configuration and point; `curves` has the columns of schemas.CURVES.

    `repeats` is the heading of the numbers of server starts, or of logs.
    """
    columns = ["Configuration", "Load", "Total tokens/s, as run", "Requests/s", *_LATENCIES.values(), repeats]
    return Table(columns, [_curve_row(row) for row in curves.to_dict("records")])


def _curve_row(row: Row) -> list[Cell]:
    load = f"{row['curve']}: {AT[row['load']].format(row['level'])}"
    head = [
        Cell(str(row["candidate"]), row["run_id"], str(row["stage"]), is_good=row["candidate"] == "winner"),
        Cell(load, note="the point that decides" if row["decides"] else ""),
    ]
    if row["outcome"] != "ok":
        why = "saturated at a lower rate: not sent" if row["outcome"] == "saturated" else f"failed: {row['reason']}"
        return [*head, Cell(why), *(Cell("–") for _ in range(len(_LATENCIES) + 1)), Cell(f"{row['starts']}")]
    value, low, high = (value_or_none(row[f"total_tokens_per_s{end}"]) for end in ("", "_ci95_low", "_ci95_high"))
    figures = [Cell(figure(row[name]), row["run_id"]) for name in ("requests_per_s", *_LATENCIES)]
    total = Cell(estimate(value, low, high), row["run_id"], mark=mark(row["validity"]))
    return [*head, total, *figures, Cell(f"{row['starts']}")]


MOST_ROWS = 12
"""Answers that a report shows."""
_GRADED = {True: "right", False: "wrong"}
MOST_CHARACTERS = 600
"""Characters of a text that the table shows."""


def answers_table(answers: pd.DataFrame) -> Table | None:
    """The answers that differ most, lost ones first; `answers` has the columns of schemas.STAGE_ANSWERS.

    None if none differs. A configuration's answer to a question is shown once, however often it was asked.
    """
    differ = answers[(answers["run_id"] != answers["baseline_run_id"]) & (answers["edit_share"] > 0)]
    lost = (differ["baseline_right"] == True) & (differ["right"] == False)  # noqa: E712 (null is neither)
    order = ["lost", "edit_share", "question", "candidate", "start"]
    found = differ.assign(lost=lost).sort_values(order, ascending=[False, False, True, True, True])
    columns = ["Configuration", "Question", "The baseline's answer", "Its answer", "Edits per character"]
    rows = found.drop_duplicates(["candidate", "question"]).to_dict("records")
    return Table(columns, [_answer_row(row) for row in rows], most=MOST_ROWS) if rows else None


def _answer_row(row: Row) -> list[Cell]:
    expected = f"right: {row['expected']}" if isinstance(row["expected"], str) else ""
    return [
        Cell(str(row["candidate"]), row["run_id"], f"{row['stage']}, {row['start']}"),
        Cell(_one_line(row["prompt"]), note=expected),
        Cell(_one_line(row["baseline_text"]), row["baseline_run_id"], _GRADED.get(row["baseline_right"], "")),
        Cell(_one_line(row["text"]), row["run_id"], _GRADED.get(row["right"], "")),
        Cell(f"{row['edit_share']:.2f}"),
    ]


def _one_line(text: Any) -> str:
    """A text on one line, without what no page shows."""
    if not isinstance(text, str):
        return "(no answer)"
    shown = " ".join(text[: 2 * MOST_CHARACTERS].split())
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]}…"
