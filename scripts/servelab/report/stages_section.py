"""The search: why each stage ended as it did, and all that it tried. The proof: its pairs and what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.figure_text import NO_BREAK, PLACES_MARK, duration, estimate, figure, interval, metric_label, percent
from servelab.measure.run_files import RunManifest
from servelab.metrics.definitions import METRICS
from servelab.metrics.objective import per_basis
from servelab.report.page import MOST_ROWS, Cell, ShownMeasurement, Table, change_cell, value_or_none
from servelab.results.compare_with_baseline import paired_labels
from servelab.search.decision import Decision, Verdict
from servelab.search.recommended import Improvement, Proof, Recommended
from servelab.study.project import StageOutline, StudySummary
from servelab.study.study import CONFIRM


class Origin:
    """The evidence behind a study's figures, and how to show it. Links are relative to the report.

    The methods here are those of an origin that knows nothing more of its runs.
    """

    kind: str
    """`measured` or `recorded`."""
    remark: str
    """A sentence that names where the raw figures are."""

    def warnings(self, run_ids: Sequence[str]) -> dict[str, str]:
        """What a reader must know of these runs, in a sentence each: title → text, which may be empty."""
        return {}

    def href(self, run_id: str) -> str:
        """Link to what a run's figures were computed from; empty if there is nothing."""
        raise NotImplementedError

    def failure_href(self, run_id: str) -> str:
        """Link to the log of a failure; empty if there is none."""
        return ""

    def manifest(self, run_id: str) -> RunManifest | None:
        """What a run was made with; None if that is not known."""
        return None

    def model_has_name(self, run_id: str) -> bool:
        """Whether an engine finds the served weights by the name in the command: not if they were made here."""
        return True

    def provenance(self, study: StudySummary, workload_of: dict[str, str]) -> dict[str, Table]:
        """Tables by heading: software, model, workloads, machines; `workload_of` names the workload of each run."""
        raise NotImplementedError


Row = dict[Any, Any]
_LATENCIES = ("ttft_ms", "tpot_ms")


@dataclass(frozen=True)
class StageSection:
    """Why one stage ended as it did, and what it tried."""

    title: str
    outcome: str
    reason: str
    rows: list[list[Cell]]
    """Rows of the table of the search."""
    warning: str = ""
    """How the places of the runs that the stage compared differ; empty if they do not."""
    effort: str = ""


def stage_sections(
    study: StudySummary, table: pd.DataFrame, decisions: Sequence[Decision], measured: ShownMeasurement, origin: Origin
) -> list[StageSection]:
    """The sections in the order of the search, without stages that had nothing to try.

    `ServelabError` for a stage without decision or table.
    """
    decision_of = {decision.stage: decision for decision in decisions}
    for kind, known in (("decision.json", set(decision_of)), ("table.parquet", set(table["stage"]))):
        if missing := [stage.name for stage in study.stages if stage.name not in known]:
            raise ServelabError(f"no {kind} was given for stage {', '.join(missing)} of study {study.study}")
    return [
        _section(stage, table[table["stage"] == stage.name], decision_of[stage.name], measured, origin)
        for stage in study.stages
        if stage.candidates or decision_of[stage.name].applies
    ]


def search_table(study: StudySummary, sections: Sequence[StageSection], is_recorded: bool) -> Table:
    """All that the search tried, failed or left out, stage by stage.

    What a search found chose the winner and is no claim, so that it has no changes; those of recorded logs are theirs.
    """
    label = metric_label(*study.objective.metric_and_basis)
    figures = [label, "Change"] if is_recorded else [f"Search: {label}"]
    latencies = [metric_label(latency) for latency in _LATENCIES]
    columns = ["Candidate", "Verdict", *figures, *latencies, "n"]
    return Table(columns, [row for section in sections for row in section.rows], most=MOST_ROWS * len(sections))


def _section(
    stage: StageOutline, table: pd.DataFrame, decision: Decision, measured: ShownMeasurement, origin: Origin
) -> StageSection:
    blanks = [Cell("–")] * (4 + (origin.kind == "recorded"))

    def left_out(candidate: str, why: str) -> list[Cell]:
        return [Cell(candidate, note=decision.title), Cell("not tried", note=why), *blanks]

    if not decision.applies:
        rows = [left_out(candidate, decision.reason) for candidate in stage.candidates]
        return StageSection(decision.title, "Not applicable", decision.reason, rows)
    verdicts = {verdict.candidate: verdict for verdict in decision.candidates}
    planned = _in_order(table, decision)
    rows = [_row(row, verdicts, decision, measured, origin) for row in planned if value_or_none(row["run_id"])]
    for row in planned:
        if not value_or_none(row["run_id"]):
            refused = "refused before any run: " if row["outcome"] == "failed" else ""
            rows.append(left_out(row["candidate"], f"{refused}{row['message']}"))
    seen = {row["candidate"] for row in planned}
    same = "the same configuration as the incumbent or another candidate"
    rows += [left_out(candidate, same) for candidate in stage.candidates if candidate not in seen]
    rows += [left_out(*line.rsplit(": ", 1)) for line in decision.predicted]
    outcome = "Winner" if decision.changed else "The incumbent stays"
    ran = table.dropna(subset=["run_id"]).drop_duplicates("run_id")
    runs = sum(len(run_ids) for run_ids in ran["run_ids"])
    effort = f"{runs} run{'' if runs == 1 else 's'}, {duration(ran['accelerator_s'].sum())} of accelerator time"
    return StageSection(decision.title, outcome, decision.reason, rows, decision.unequal_places or "", effort)


def _in_order(table: pd.DataFrame, decision: Decision) -> list[Row]:
    """Rows in the order of the stage; if there are too many to show, incumbent, winner and the best come first."""
    table = table.sort_values("position", kind="stable")
    if len(table) > MOST_ROWS:
        higher_is_better = bool(METRICS.get(str(table["objective"].iloc[0])).higher_is_better)
        first = table["is_incumbent"] | (table["candidate"] == decision.winner.candidate)
        others = table[~first].sort_values("objective_value", ascending=not higher_is_better, kind="stable")
        table = pd.concat([table[first], others]).head(MOST_ROWS)
    return table.to_dict("records")


def _row(
    row: Row, verdicts: Mapping[str, Verdict], decision: Decision, measured: ShownMeasurement, origin: Origin
) -> list[Cell]:
    verdict, run_ids = verdicts.get(row["candidate"]), list(row["run_ids"])
    changes = _changes(json.loads(row["changes"]))
    note = decision.title if changes in ("", row["candidate"]) else f"{decision.title}; {changes}"
    word, is_ok = verdict.verdict if verdict else str(row["outcome"]), row["outcome"] == "ok"
    why = verdict.why if verdict and is_ok else f"{str(row['reason']).replace('_', ' ')}: {row['message'] or ''}"
    log = "" if is_ok else origin.failure_href(row["run_id"])
    return [
        Cell(row["candidate"], row["run_id"], note, is_good=word == "winner"),
        Cell(word, link=log, note=why),
        _objective(row, origin.kind == "recorded"),
        *([_change(row, verdict, decision.incumbent.run_id)] if origin.kind == "recorded" else []),
        *(measured.cell(run_ids, latency, with_p99=True) for latency in _LATENCIES),
        measured.counts(run_ids),
    ]


def _changes(changes: dict[str, Any]) -> str:
    """A candidate's changes as `key=value` in one line; for a bare flag, only its name."""
    texts = []
    for key, value in changes.items():
        if isinstance(value, dict):
            texts.append(_changes(value))
        else:
            texts.append(key if value is None else f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    return ", ".join(texts)


def _objective(row: Row, is_recorded: bool) -> Cell:
    value = value_or_none(row["objective_value"])
    if value is None:
        return Cell("–")
    text = estimate(value, row["objective_ci95_low"], row["objective_ci95_high"])
    factor, extrapolated = per_basis(row["objective_per"], int(row["accelerators"]), int(row["accelerators_per_node"]))
    notes = [f"extrapolated (×{NO_BREAK}{factor:g})"] if extrapolated else []
    if not is_recorded:
        notes.insert(0, f"on {row['starts']} start{'' if row['starts'] == 1 else 's'}")
    return Cell(text, row["run_id"], ", ".join(notes))


def _change(row: Row, verdict: Verdict | None, incumbent: str | None) -> Cell:
    if verdict is None:
        return Cell("–")
    higher_is_better = bool(METRICS.get(str(row["objective"])).higher_is_better)
    return change_cell(verdict.model_dump(), row["run_id"], higher_is_better, incumbent)


def proof_section(
    study: StudySummary, recommended: Recommended, table: pd.DataFrame, metrics: pd.DataFrame
) -> dict[str, Any]:
    """The proof as it is in `recommended`, and the tables of its `workloads` and `pairs`; empty without a proof.

    From rows of schemas.STAGE_TABLE and schemas.METRICS.
    """
    if (proof := recommended.proof) is None:
        return {}
    pairs = _pairs(study, table[table["stage"] == CONFIRM], metrics)
    return {"said": proof, "workloads": _proved(study, proof), "pairs": pairs}


def _proved(study: StudySummary, proof: Proof) -> Table:
    """Per workload: the verdict, what the search promised, what the proof found and could have seen."""
    rows = []
    for each in proof.workloads:
        decides = each.workload == study.objective.on
        seen = "–" if each.smallest_change_percent is None else percent(each.smallest_change_percent, signed=False)
        rows.append(
            [
                Cell(each.title, note="decides" if decides else ""),
                Cell(str(each.verdict)),
                Cell(percent(proof.promised_change_percent), note="no claim") if decides else Cell("–"),
                _found(each),
                Cell(seen),
                Cell(str(each.n)),
            ]
        )
    columns = ["Workload", "Verdict", "Promised by the search", "Found by the proof", "Smallest change seen", "Pairs"]
    return Table(columns, rows)


def _found(row: Improvement) -> Cell:
    if row.change_percent is None:
        return Cell("–", note=row.failed or "")
    note = interval(row.change_ci95_low_percent, row.change_ci95_high_percent)
    sign = PLACES_MARK if row.unequal_places else ""
    return Cell(percent(row.change_percent), note=note, is_good=row.verdict == "better", mark=sign)


def _pairs(study: StudySummary, table: pd.DataFrame, metrics: pd.DataFrame) -> Table:
    """Every pair of the proof with the objective on both sides and their ratio; also those that do not count."""
    label = metric_label(*study.objective.metric_and_basis)
    start_of = dict(zip(metrics["run_id"], metrics["start"], strict=True))
    rows = []
    for workload, title in study.workloads.items():
        sides: list[Row] = table[table["workload"] == workload].sort_values("position").to_dict("records")
        if len(sides) < 2:
            continue
        counting = set(paired_labels(*sides))
        values = [dict(zip(side["start_labels"], side["start_values"], strict=True)) for side in sides]
        runs = [{start_of.get(run_id): run_id for run_id in side["run_ids"]} for side in sides]
        for start in dict.fromkeys([*values[0], *values[1]]):
            note = "" if start in counting else "does not count"
            before, after = (of_side.get(start) for of_side in values)
            ids = [of_side.get(start) for of_side in runs]
            found = zip((before, after), ids, strict=True)
            cells = [Cell("–" if each is None else figure(each), run_id) for each, run_id in found]
            ratio = f"{after / before:.3f}" if before and after else "–"
            rows.append([Cell(title, note=start), *cells, Cell(ratio, note=note)])
    return Table(["Pair", f"Baseline ({label})", f"Proposed ({label})", "Ratio"], rows)
