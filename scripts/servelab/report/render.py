"""Assembles a study's report, with marks on figures of runs that are not valid, and fills its template."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from servelab.core.errors import ServelabError
from servelab.core.figure_text import MARKS, MARKS_KEY, PLACES_KEY, mark
from servelab.core.files import write_text
from servelab.metrics.tables.io import read_tables
from servelab.report.answer_section import answer_facts, baseline_command, card, difference, forms_of, only_in
from servelab.report.bottlenecks import Counters, limited_by
from servelab.report.charts import CHARTS, chart_runtime, inline_spec, inline_svg, read_chart
from servelab.report.claims_section import audit_section
from servelab.report.comparison_section import (
    SIDES,
    accelerators_text,
    answers_table,
    curves_table,
    front_table,
    limits_by_side,
    objective_table,
    other_metrics_table,
    sides_table,
)
from servelab.report.page import Cell, ShownMeasurement, Table, render_html, value_or_none, write_tables
from servelab.report.stages_section import Origin, proof_section, search_table, stage_sections
from servelab.report.versions_section import versions_section
from servelab.search.decision import Decision
from servelab.search.recommendation_text import aim, answer_text
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary, is_live
from servelab.study.study import COMPARISON, CONFIRM

SEARCH_REMARK = "These figures chose what to prove, most of them on a single {}. They are no claim."
_UNITS = {
    "recorded": ("log", "logs", ""),
    "visited": ("visit", "pairs of visits", "a visit of each side, one after the other"),
    "measured": (
        "server start",
        "pairs of server starts",
        "a fresh server start of each side, one after the other on the same devices",
    ),
}
"""Kind of evidence → a measurement, what a change's interval is over, and a pair of the proof."""


def report_content(
    study: StudySummary,
    recommended: Recommended,
    decisions: Sequence[Decision],
    origin: Origin,
    tables: Mapping[str, pd.DataFrame],
    asked: pd.DataFrame | None = None,
    drawn: Collection[str] = (),
) -> dict[str, Any]:
    """Variables of the template, and `card`, the text of report.md.

    `tables` has the rows of all stage tables as `stages`, and those of the study's tables by their names; `asked` has
    rows of schemas.STAGE_ANSWERS. `drawn` lists the charts that exist.
    """
    table, improvements, metrics, checks = (tables[name] for name in ("stages", "improvements", "metrics", "checks"))
    curves, device_series, claims = (tables.get(name) for name in ("curves", "device_series", "claims"))
    measured, marks, is_recorded = ShownMeasurement(metrics), Marks(table), origin.kind == "recorded"
    ran = table.dropna(subset=["run_id"])
    measured_rows = [*ran.to_dict("records"), *([] if curves is None else curves.to_dict("records"))]
    workload_of = {run_id: row["workload"] for row in measured_rows for run_id in row["run_ids"]}
    warnings, baseline = _warnings(recommended, origin, list(workload_of)), baseline_command(table)
    unit, pairs, pair = _UNITS["visited" if "Not started here" in warnings else origin.kind]
    answer, forms = answer_text(recommended, study.objective.on), forms_of(study, recommended, origin, baseline)
    command, second = forms[0].text, dict[str, Any]()
    if recommended.second:
        second = {"aim": aim(recommended.second), "form": forms_of(study, recommended.second, origin, baseline)[0]}
        second["front"] = front_table(recommended, recommended.second)
        command += f"\n\n# {second['aim']}:\n{second['form'].text}"
    facts = answer_facts(study, recommended, tables.get("search"), pair=pairs, is_recorded=is_recorded)
    counters = {} if device_series is None else limits_by_side(study, table, metrics, device_series)
    if recommended.changed and (why := _why(counters)):
        facts["Why faster"] = why
    proof = proof_section(study, recommended, table, metrics)
    places = "Not measured at one place" in warnings
    doubts = "; ".join([*([MARKS_KEY] if marks else []), *([PLACES_KEY] if places else [])])
    stages = stage_sections(study, table, decisions, measured, origin)
    return {
        "study": study,
        "recommended": recommended,
        "answer": answer,
        "facts": facts,
        "warnings": warnings,
        "forms": forms,
        "second": second,
        "difference": difference(forms[0], only_in(baseline, recommended.command)) if recommended.changed else {},
        "card": card(study.title, answer.text, [*facts.values(), *recommended.answers_text, doubts], command),
        "proof": proof and proof | {"pairs": marks.on(proof["pairs"])},
        "unit": unit,
        "pairs": pairs,
        "pair": pair,
        "search_remark": "" if is_recorded else SEARCH_REMARK.format(unit),
        "marks_key": doubts,
        "accelerators": accelerators_text(study, table),
        "sides": sides_table(study, table, metrics, counters),
        "objective_table": marks.on(objective_table(study, recommended, improvements, measured, table)),
        "other_metrics": marks.on(other_metrics_table(study, improvements, measured, table)),
        "figures": {
            section: [chart for chart in CHARTS if chart.section == section and chart.name in drawn]
            for section in ("answer", "tried", "loads")
        },
        "curves": None if curves is None or curves.empty else curves_table(curves, "Logs" if is_recorded else "Starts"),
        "answers": None if asked is None else answers_table(asked),
        "stages": stages,
        "searched": marks.on(search_table(study, stages, is_recorded)),
        "versions": versions_section(study, tables["history"], tables["answers"]) if "history" in tables else None,
        "audit": None if claims is None else audit_section(claims),
        "origin": origin,
        "provenance": origin.provenance(study, workload_of),
        "checks_summary": checks_summary(checks),
        "checks": checks_table(study, checks, measured_rows),
        "manifest": origin.manifest(recommended.run_id),
    }


def report_html(content: dict[str, Any], charts: Path) -> str:
    """`report.html`: one file with style, scripts and charts inside; `ServelabError` names a chart that is missing."""
    return render_html(
        "report.html.j2",
        content,
        chart_runtime(),
        svg=lambda chart: inline_svg(read_chart(charts / f"{chart.name}.svg"), chart.name, chart.caption),
        spec=lambda chart: inline_spec(read_chart(charts / f"{chart.name}.json")),
    )


def _warnings(recommended: Recommended, origin: Origin, run_ids: Sequence[str]) -> dict[str, str]:
    """Notes that a reader needs before the figures: title → text."""
    gains = recommended.proof.workloads if recommended.proof else recommended.improvements
    found = list(dict.fromkeys(each.unequal_places for each in gains if each.unequal_places))
    warnings = origin.warnings(run_ids) | {
        "Not measured at one place": " / ".join(found),
        "Changes answers": " ".join(recommended.answers_text[1:]),
        "Note": recommended.note or "",
    }
    return {title: text for title, text in warnings.items() if text}


def _why(counters: Mapping[str, Counters]) -> str:
    """The bottleneck of each side, if they differ; empty if they do not, or one is not known."""
    found = {side: limited_by(each) for side, each in counters.items()}
    kinds = {text.partition(":")[0] for text in found.values()}
    if len(kinds) < len(SIDES) or not all(found.values()):
        return ""
    return "; ".join(f"{SIDES[side].lower()} {text}" for side, text in found.items())


RENDERED = ("report.html", "report.md", "tables")
"""Files that rendering writes into a study's folder."""
_TABLES = ("metrics", "search", "improvements", "checks", "claims", "history", "answers", "curves", "device_series")


def write_report(found: Mapping[str, Any], origin: Origin, charts: Path, folder: Path) -> None:
    """Writes the `RENDERED` files into a folder; `found` has the inputs of the rule `render_report`, by name."""
    tables = {"stages": read_tables(found["stages"])}
    tables |= {name: read_tables([found[name]]) for name in _TABLES if name in found}
    content = report_content(
        StudySummary.read(found["study"]),
        Recommended.read(found["recommended"]),
        [Decision.read(path) for path in found["decisions"]],
        origin,
        tables,
        asked=read_tables(found["asked"]) if found.get("asked") else None,
        drawn={path.stem for path in charts.glob("*.svg")},
    )
    write_tables(folder / "tables", tables)
    write_text(folder / "report.md", content["card"])
    write_text(folder / "report.html", report_html(content | {"tables": list(tables)}, charts))


def render_again(results: Path, search: str, origin: Origin) -> None:
    """Renders the report of a finished study again, with its charts; a missing or broken file is a `ServelabError`."""
    folder = results / search
    searched = [stage.name for stage in StudySummary.read(folder / "study.json").stages]
    stages = [folder / "stages" / stage for stage in [*searched, CONFIRM if is_live(search) else COMPARISON]]
    found: dict[str, Any] = {name: folder / f"{name}.json" for name in ("study", "recommended")}
    found |= {name: path for name in _TABLES if (path := folder / f"{name}.parquet").exists()}
    found["stages"] = [stage / "table.parquet" for stage in stages]
    found["decisions"] = [stage / "decision.json" for stage in stages[:-1]]
    if is_live(search):
        found["asked"] = [path for stage in stages if (path := stage / "answers.parquet").exists()]
    write_report(found, origin, folder / "charts", folder)


_LEVELS = tuple(reversed(MARKS))
"""The worst first."""


class Marks:
    """The mark of each run that is not valid, put on every figure computed from the run."""

    def __init__(self, table: pd.DataFrame) -> None:
        """`table` has rows of schemas.STAGE_TABLE."""
        self._runs: dict[str, tuple[str, str]] = {
            run_id: (row["validity"], str(row["validity_note"]))
            for row in table.to_dict("records")
            if row["validity"] in MARKS
            for run_id in row["run_ids"]
        }

    def __bool__(self) -> bool:
        """Whether any figure has a mark."""
        return bool(self._runs)

    def on(self, table: Table) -> Table:
        """The table with marked figures, each with its reason."""
        return replace(table, rows=[[self._cell(cell) for cell in row] for row in table.rows])

    def _cell(self, cell: Cell) -> Cell:
        found = [self._runs[run_id] for run_id in (cell.run_id, cell.against) if run_id in self._runs]
        if not found:
            return cell
        reasons = [f"{level}: {note}" for level, note in found] + [cell.mark_why] * bool(cell.mark_why)
        sign = mark(*(level for level, _ in found)) + cell.mark
        return replace(cell, mark=sign, mark_why="; ".join(reasons))


def checks_summary(checks: pd.DataFrame) -> str:
    """How many checks ran, and how many passed."""
    counts = checks["level"].value_counts()
    made = len(checks) - counts.get("not applicable", 0)
    runs = checks["run_id"].nunique()
    text = f"{made:,} checks ran on {runs:,} run{'' if runs == 1 else 's'}: {counts.get('ok', 0):,} passed"
    failed = [f"{counts[level]:,} found a run {level}" for level in _LEVELS if level in counts]
    return f"{', '.join([text, *failed])}. {counts.get('not applicable', 0):,} did not apply."


def checks_table(study: StudySummary, checks: pd.DataFrame, measured: Sequence[Mapping[Any, Any]]) -> Table:
    """Every failed check, worst first: the run, what the check saw and what to do.

    `measured` are the rows of the stages' tables and of the curves. A check of a run that is in none of them is a
    `ServelabError`.
    """
    titles = {stage.name: stage.title for stage in study.stages}
    runs: dict[Any, Any] = {run_id: row for row in reversed(measured) for run_id in row["run_ids"]}
    rows = []
    for finding in [each for level in _LEVELS for each in checks[checks["level"] == level].to_dict("records")]:
        run = runs.get(finding["run_id"])
        if run is None:
            raise ServelabError(f"the checks name run {finding['run_id']}, which is in no table")
        workload = study.workloads.get(finding["workload"], finding["workload"])  # a workload's part has no title
        place = f"{titles.get(run['stage'], run['stage'].capitalize())}, {workload}"
        name = Cell(run["candidate"], finding["run_id"], place)
        check = Cell(str(finding["check"]).replace("_", " "), note=finding["level"])
        rows.append([name, check, Cell(finding["saw"]), Cell(value_or_none(finding["action"]) or "")])
    return Table(["Run", "Check", "What it saw", "What to do"], rows)
