"""One section per stage: what was tried, the results, and why the winner won."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.yaml_file import NO_BREAK, duration, estimate, metric_label
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import per_basis
from servelab.report.page import MOST_ROWS, Cell, ShownMeasurement, Table, change_cell, value_or_none
from servelab.search.decide import CONSTRAINT_MISSED
from servelab.search.decision import CANNOT_TELL, CHANGES_ANSWERS, Decision, Verdict
from servelab.study.project import StageOutline, StudySummary


class Origin:
    """The evidence behind a study's figures, and how to show it. Links are relative to the report.

    The methods here are those of an origin that knows nothing more of its runs.
    """

    kind: str
    """`measured` or `recorded`."""
    remark: str
    """A sentence that names where the raw figures are."""
    target: str
    """Arguments for Snakemake that make the report again."""

    def imported(self, run_ids: Sequence[str]) -> str:
        """A sentence that says which of these runs were restored from an archive; empty if none was."""
        return ""

    def visited(self, run_ids: Sequence[str]) -> str:
        """A sentence on the servers that already ran, and what cannot be known of them; empty if there was none."""
        return ""

    def href(self, run_id: str) -> str:
        """Link to what a run's figures were computed from; empty if there is nothing."""
        raise NotImplementedError

    def failure_href(self, run_id: str) -> str:
        """Link to the log of a failure; empty if there is none."""
        return ""

    def commit(self, run_id: str) -> str | None:
        """The commit a run was measured at; None if unknown."""
        return None

    def model_has_name(self, run_id: str) -> bool:
        """Whether an engine finds the served weights by the name in the command: not if they were made here."""
        return True

    def image(self, run_id: str) -> str | None:
        """The container image, by digest, that served a run; None if no container is known."""
        return None

    def provenance(self, study: StudySummary, workload_of: dict[str, str]) -> dict[str, Table]:
        """Tables by heading: software, model, workloads, machines; `workload_of` names the workload of each run."""
        raise NotImplementedError


Row = dict[Any, Any]

RATES = ("total_tokens_per_s", "output_tokens_per_s", "requests_per_s")
LATENCIES = ("ttft_ms", "tpot_ms")


@dataclass(frozen=True)
class StageSection:
    """The report's section on one stage."""

    name: str
    title: str
    applies: bool
    outcome: str
    reason: str
    warning: str = ""
    """How the places of the runs that the stage compared differ; empty if they do not."""
    effort: str = ""
    table: Table | None = None
    failures: Table | None = None
    """Candidates that could not be measured, with the log line that explains the failure."""
    commands: list[tuple[str, str | None, str]] = field(default_factory=list)
    """Candidate, its run and its command."""
    not_tried: list[tuple[str, str]] = field(default_factory=list)
    """Candidates that were not run, and why."""


def stage_sections(
    study: StudySummary, table: pd.DataFrame, decisions: Sequence[Decision], measured: ShownMeasurement, origin: Origin
) -> list[StageSection]:
    """The sections in the order of the search; `ServelabError` for a stage without decision or table."""
    decision_of = {decision.stage: decision for decision in decisions}
    for kind, known in (("decision.json", set(decision_of)), ("table.parquet", set(table["stage"]))):
        if missing := [stage.name for stage in study.stages if stage.name not in known]:
            raise ServelabError(f"no {kind} was given for stage {', '.join(missing)} of study {study.study}")
    return [
        _section(stage, table[table["stage"] == stage.name], decision_of[stage.name], measured, origin)
        for stage in study.stages
    ]


def _section(
    stage: StageOutline,
    table: pd.DataFrame,
    decision: Decision,
    measured: ShownMeasurement,
    origin: Origin,
) -> StageSection:
    if not decision.applies:
        not_tried = [(candidate, decision.reason) for candidate in stage.candidates]
        outcome = "Not applicable"
        return StageSection(stage.name, decision.title, False, outcome, decision.reason, not_tried=not_tried)
    planned = _in_order(table, decision)
    rows = [row for row in planned if row["outcome"] in ("ok", "failed")]
    verdicts = {verdict.candidate: verdict for verdict in decision.candidates}
    left_out = [
        (
            row["candidate"],
            f"refused before any run: {row['message']}" if row["outcome"] == "failed" else str(row["message"]),
        )
        for row in planned
        if not value_or_none(row["run_id"])
    ]
    seen = {row["candidate"] for row in planned}
    same = [
        (candidate, "the same configuration as the incumbent or another candidate")
        for candidate in stage.candidates
        if candidate not in seen
    ]
    commands = [(row["candidate"], value_or_none(row["run_id"]), row["command"]) for row in rows if row["command"]]
    outcome = "Winner" if decision.changed else "The incumbent stays"
    shown = _table(rows, verdicts, measured, origin.kind == "recorded") if rows else None
    return StageSection(
        stage.name,
        decision.title,
        True,
        outcome,
        decision.reason,
        decision.unequal_places or "",
        _effort(table),
        shown,
        _failures(rows, origin),
        commands[:MOST_ROWS],
        left_out + same,
    )


def _in_order(table: pd.DataFrame, decision: Decision) -> list[Row]:
    """Rows in the order of the stage; if there are too many to show, incumbent, winner and the best come first."""
    table = table.sort_values("position", kind="stable")
    if len(table) > MOST_ROWS:
        higher_is_better = bool(METRICS.get(str(table["objective"].iloc[0])).higher_is_better)
        first = table["is_incumbent"] | (table["candidate"] == decision.winner.candidate)
        others = table[~first].sort_values("objective_value", ascending=not higher_is_better, kind="stable")
        table = pd.concat([table[first], others])
    return table.to_dict("records")


def _failures(rows: Sequence[Row], origin: Origin) -> Table | None:
    failed = [row for row in rows if row["outcome"] != "ok" and value_or_none(row["run_id"])]
    cells = [
        [
            Cell(row["candidate"], row["run_id"]),
            Cell(str(row["reason"]).replace("_", " "), link=origin.failure_href(row["run_id"])),
            Cell(str(value_or_none(row["message"]) or "")),
        ]
        for row in failed
    ]
    columns = ["Candidate", "Failed because of", "Log line that explains it"]
    return Table(columns, cells, most=50) if cells else None


def _effort(table: pd.DataFrame) -> str:
    rows = table.dropna(subset=["run_id"]).drop_duplicates("run_id")
    runs = sum(len(run_ids) for run_ids in rows["run_ids"])
    return f"{runs} run{'' if runs == 1 else 's'}, {duration(rows['accelerator_s'].sum())} of accelerator time"


def _table(rows: list[Row], verdicts: dict[str, Verdict], measured: ShownMeasurement, is_recorded: bool) -> Table:
    """The stage's table; a column that is equal in all rows, or empty, is omitted.

    What a search found chose the winner and is no claim, so that it has no changes; those of recorded logs are theirs.
    """
    objective, per = str(rows[0]["objective"]), str(rows[0]["objective_per"])
    columns: dict[str, list[Cell]] = {"Candidate": [_candidate(row, verdicts) for row in rows]}
    engines = [f"{row['engine']} {row['engine_version']}" for row in rows]
    if len(set(engines)) > 1:
        columns["Engine"] = [Cell(engine) for engine in engines]
    if len({row["accelerators"] for row in rows}) > 1:
        columns["Accelerators"] = [Cell(str(row["accelerators"])) for row in rows]
    label = metric_label(objective, per)
    columns[label if is_recorded else f"Search: {label}"] = [_objective(row, is_recorded) for row in rows]
    if is_recorded:
        columns["Change"] = [_change(row, verdicts, rows[0]["run_id"]) for row in rows]
    as_run = all(per_basis(row["objective_per"], *_counts(row))[0] == 1 for row in rows)
    others = {
        metric_label(rate): [measured.cell(list(row["run_ids"]), rate) for row in rows]
        for rate in RATES
        if rate != objective or not as_run
    }
    for latency in LATENCIES:
        others[metric_label(latency)] = [measured.cell(list(row["run_ids"]), latency, with_p99=True) for row in rows]
    others["E2EL (ms)"] = [measured.cell(list(row["run_ids"]), "e2el_ms") for row in rows]
    columns |= {name: cells for name, cells in others.items() if any(cell.run_id for cell in cells)}
    columns["n"] = [measured.counts(list(row["run_ids"])) for row in rows]
    return Table(list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)])


def _candidate(row: Row, verdicts: dict[str, Verdict]) -> Cell:
    found = verdicts.get(row["candidate"])
    verdict = found.verdict if found else row["outcome"]
    # A measured candidate that cannot win shows the reason here; one that was not measured has its own message.
    cannot_win = verdict in ("failed", CONSTRAINT_MISSED, CHANGES_ANSWERS, CANNOT_TELL) and row["outcome"] == "ok"
    said = f"{verdict}: {found.why}" if found and cannot_win else verdict
    changes = _changes(json.loads(row["changes"]))
    note = said if changes in ("", row["candidate"]) else f"{said}; {changes}"
    return Cell(row["candidate"], value_or_none(row["run_id"]), note, is_good=verdict == "winner")


def _changes(changes: dict[str, Any]) -> str:
    """A candidate's changes as `key=value` in one line; for a bare flag, only its name."""
    texts = []
    for key, value in changes.items():
        if isinstance(value, dict):
            texts.append(_changes(value))
        else:
            texts.append(key if value is None else f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    return ", ".join(texts)


def _counts(row: Row) -> tuple[int, int]:
    """Number of accelerators of a run, and of a node."""
    return int(row["accelerators"]), int(row["accelerators_per_node"])


def _objective(row: Row, is_recorded: bool) -> Cell:
    value = value_or_none(row["objective_value"])
    if value is None:
        return Cell("–")
    text = estimate(value, row["objective_ci95_low"], row["objective_ci95_high"])
    factor, extrapolated = per_basis(row["objective_per"], *_counts(row))
    notes = [f"extrapolated (×{NO_BREAK}{factor:g})"] if extrapolated else []
    if not is_recorded:
        notes.insert(0, f"on {row['starts']} start{'' if row['starts'] == 1 else 's'}")
    return Cell(text, row["run_id"], ", ".join(notes))


def _change(row: Row, verdicts: dict[str, Verdict], incumbent: str | None) -> Cell:
    verdict = verdicts.get(row["candidate"])
    if verdict is None:
        return Cell("–")
    higher_is_better = bool(METRICS.get(str(row["objective"])).higher_is_better)
    return change_cell(verdict.model_dump(), row["run_id"], higher_is_better, incumbent)
