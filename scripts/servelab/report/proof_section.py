"""The proof: its pairs of server starts, its verdict, and what the search promised beside what the proof found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from servelab.core.yaml_file import PLACES_MARK, figure, interval, metric_label, percent
from servelab.report.page import Cell, Table
from servelab.results.compare_with_baseline import paired_labels
from servelab.search.recommended import Improvement, Proof, Recommended
from servelab.study.project import StudySummary
from servelab.study.study import CONFIRM

Row = dict[Any, Any]


@dataclass(frozen=True)
class ProofSection:
    """The report's section on a proof."""

    verdict: str
    why: str
    command: str
    """The proposed command, if it is not recommended; else empty."""
    workloads: Table
    pairs: Table


def proof_section(
    study: StudySummary, recommended: Recommended, table: pd.DataFrame, metrics: pd.DataFrame
) -> ProofSection | None:
    """From rows of schemas.STAGE_TABLE and schemas.METRICS; None without a proof."""
    proof = recommended.proof
    if proof is None:
        return None
    return ProofSection(
        verdict=proof.verdict,
        why=proof.why,
        command="" if recommended.changed else proof.proposed_command,
        workloads=_workloads(study, proof),
        pairs=_pairs(study, table[table["stage"] == CONFIRM], metrics),
    )


def _workloads(study: StudySummary, proof: Proof) -> Table:
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
            cells = [_value(values[at].get(start), runs[at].get(start)) for at in (0, 1)]
            ratio = Cell("–", note=note)
            if start in values[0] and start in values[1] and values[0][start] > 0:
                found = values[1][start] / values[0][start]
                ratio = Cell(f"{found:.3f}", note=note)
            rows.append([Cell(title, note=start), *cells, ratio])
    return Table(["Pair", f"Baseline ({label})", f"Proposed ({label})", "Ratio"], rows)


def _value(value: float | None, run_id: str | None) -> Cell:
    return Cell("–") if value is None else Cell(figure(value), run_id)
