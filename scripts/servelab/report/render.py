"""Assembles a study's report and fills its two templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from servelab.core.files import write_text
from servelab.core.yaml_file import MARKS_KEY, PLACES_KEY, PLACES_MARK
from servelab.metrics.tables.io import read_tables
from servelab.report.charts import CHARTS, chart_runtime, inline_spec, inline_svg, read_chart
from servelab.report.charts.write import add_decisions
from servelab.report.claims_section import audit_section
from servelab.report.forms import Deployment, command_forms
from servelab.report.improvement_tables import (
    Headline,
    accelerators_text,
    answer_lines,
    answers_table,
    capacity_lines,
    curves_table,
    front_table,
    guard_section,
    headline,
    limit_lines,
    objective_table,
    other_metrics_table,
    place_warning,
)
from servelab.report.measured_runs import Marks, MeasuredRuns, checks_summary, checks_table, startup_lines
from servelab.report.page import Cell, ShownMeasurement, Table, render_html, render_markdown, write_tables
from servelab.report.proof_section import proof_section
from servelab.report.stages_section import Origin, StageSection, search_cost, stage_sections
from servelab.report.versions_section import versions_section
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary
from servelab.study.study import AFTER_SEARCH, CONFIRM

SEARCH_REMARK = "These figures chose what to prove, most of them on a single {}. They are no claim."
PAIR_OF_STARTS = "a fresh server start of each side, one after the other on the same devices"
PAIR_OF_VISITS = "a visit of each side, one after the other"


@dataclass(frozen=True)
class Card:
    """The answer for a pull request or a chat."""

    title: str
    figure: str
    """The answer as figures, or that the baseline stays."""
    lines: list[str]
    command: str

    @property
    def markdown(self) -> str:
        """The card as GitHub, GitLab and chats show it."""
        said = "".join(f"- {line}\n" for line in self.lines)
        return f"**{self.figure}**\n\n{self.title}\n\n{said}\n```bash\n{self.command}\n```\n"


def answer_card(study: StudySummary, recommended: Recommended, headline: Headline, command: str, doubts: str) -> Card:
    """The card of a study; `command` is what its report recommends, `doubts` what its marks mean."""
    used = recommended.served_on or f"{recommended.configuration.accelerators} × {study.hardware.accelerator}"
    proof = recommended.proof
    lines = [
        headline.text if headline.values else "",
        recommended.answers_text[0],
        f"Proof: {proof.verdict}. {proof.why}" if proof else f"Evidence: {recommended.evidence}",
        doubts,
    ]
    return Card(
        title=f"{recommended.model} on {used}, {recommended.engine} {recommended.engine_version}",
        figure=f"{headline.values} ({headline.figure})" if headline.values else headline.text,
        lines=[line for line in lines if line],
        command=command,
    )


def report_content(
    study: StudySummary,
    recommended: Recommended,
    table: pd.DataFrame,
    decisions: Sequence[Decision],
    improvements: pd.DataFrame,
    metrics: pd.DataFrame,
    checks: pd.DataFrame,
    origin: Origin,
    *,
    search: pd.DataFrame | None = None,
    claims: pd.DataFrame | None = None,
    history: pd.DataFrame | None = None,
    answers: pd.DataFrame | None = None,
    curves: pd.DataFrame | None = None,
    asked: pd.DataFrame | None = None,
    drawn: Collection[str] = (),
) -> dict[str, Any]:
    """Variables of the templates.

    `table` has the rows of all stage tables, `search` those of schemas.SEARCH, `claims` those of schemas.CLAIMS,
    `history` and `answers` those of schemas.HISTORY and ANSWERS, `curves` those of schemas.CURVES, `asked` those of
    schemas.STAGE_ANSWERS. `drawn` lists the charts that exist.
    """
    measured, proof = ShownMeasurement(metrics), proof_section(study, recommended, table, metrics)
    marks, is_recorded, places = Marks(table), origin.kind == "recorded", place_warning(recommended)
    stages = [_marked(stage, marks) for stage in stage_sections(study, table, decisions, measured, origin)]
    ran = table.dropna(subset=["run_id"])
    measured_rows = [*ran.to_dict("records"), *([] if curves is None else curves.to_dict("records"))]
    workload_of = {run_id: row["workload"] for row in measured_rows for run_id in row["run_ids"]}
    provenance, visited = origin.provenance(study, workload_of), origin.visited(list(workload_of))
    forms, head = _forms(study, recommended, origin), headline(study, recommended, improvements)
    head_mark = marks.of(recommended.run_id, recommended.baseline_run_id) + (PLACES_MARK if places else "")
    doubts = "; ".join([*([MARKS_KEY] if marks else []), *([PLACES_KEY] if places else [])])
    searched = add_decisions(table[~table["stage"].isin(AFTER_SEARCH)].reset_index(drop=True), decisions, study)
    return {
        "study": study,
        "recommended": recommended,
        "forms": forms,
        "card": answer_card(study, recommended, head, next(iter(forms.values())), doubts if head_mark else ""),
        "guards": guard_section(recommended),
        "proof": proof and replace(proof, pairs=marks.on(proof.pairs)),
        "headline": head,
        "headline_mark": head_mark,
        "place_warning": places,
        "unit": "logs" if is_recorded else "visits" if visited else "server starts",
        "pairs": "logs" if is_recorded else "pairs of visits" if visited else "pairs of server starts",
        "pair": PAIR_OF_VISITS if visited else PAIR_OF_STARTS,
        "visited": visited,
        "search_remark": "" if is_recorded else SEARCH_REMARK.format("visit" if visited else "server start"),
        "marks_key": doubts,
        "accelerators": accelerators_text(study, table),
        "limits": [
            *limit_lines(study, table),
            *startup_lines(study, table),
            *capacity_lines(study, table),
            *answer_lines(study, table, metrics),
        ],
        "objective_table": marks.on(objective_table(study, recommended, improvements, measured, table)),
        "other_metrics": marks.on(other_metrics_table(study, improvements, measured, table)),
        "front": marks.on(front_table(searched, measured)),
        "figures": {
            section: [chart for chart in CHARTS if chart.section == section and chart.name in drawn]
            for section in ("answer", "search", "latency", "time")
        },
        "curves": None if curves is None or curves.empty else curves_table(curves, "Logs" if is_recorded else "Starts"),
        "answers": None if asked is None else answers_table(asked),
        "stages": stages,
        "not_tried": _not_tried(stages),
        "search_cost": "" if search is None else search_cost(search, is_recorded),
        "versions": None if history is None or answers is None else versions_section(study, history, answers),
        "audit": None if claims is None else audit_section(claims),
        "origin": origin,
        "imported": origin.imported(list(workload_of)),
        "provenance": _named("provenance", provenance),
        "checks_summary": checks_summary(checks),
        "checks": checks_table(study, checks, measured_rows),
        "commit": origin.commit(recommended.run_id),
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


def report_markdown(content: dict[str, Any]) -> str:
    """`report.md`; charts are linked as `charts/<chart>.svg`."""
    return render_markdown("report.md.j2", content)


def _forms(study: StudySummary, recommended: Recommended, origin: Origin) -> dict[str, str]:
    deployment = Deployment(
        study=study.study,
        command=recommended.command,
        engine=recommended.engine,
        engine_version=recommended.engine_version,
        device=study.hardware.device,
        accelerators=recommended.configuration.accelerators,
        nodes=study.hardware.nodes,
        model_has_name=origin.model_has_name(recommended.run_id),
        image=origin.image(recommended.run_id),
        launch_command=recommended.launch_command,
    )
    return command_forms(deployment)


def _marked(stage: StageSection, marks: Marks) -> StageSection:
    """The section with a mark on each figure of an invalid or suspect run."""
    return replace(stage, table=stage.table and marks.on(stage.table))


def _named(prefix: str, tables: dict[str, Table]) -> dict[str, Table]:
    """The tables with file names made from their headings."""
    return {
        heading: replace(table, name=f"{prefix}-{heading.lower().replace(' ', '-')}")
        for heading, table in tables.items()
    }


def _not_tried(stages: Sequence[StageSection]) -> Table:
    rows = [[Cell(stage.title), Cell(candidate), Cell(why)] for stage in stages for candidate, why in stage.not_tried]
    return Table(["Stage", "Candidate", "Why"], rows, name="not-tried")


RENDERED = ("report.html", "report.md", "tables")
"""Files that rendering writes into a study's folder."""


def write_report(folder: Path, content: dict[str, Any], charts: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Writes the `RENDERED` files; `tables` are those of the study that go into the folder `tables` whole."""
    write_tables(folder / "tables", content, tables)
    write_text(folder / "report.md", report_markdown(content))
    write_text(folder / "report.html", report_html(content, charts))


def render_live_report(results: Path, study: str) -> None:
    """Renders the report of a finished live study again; a missing or broken file is a `ServelabError`."""
    folder = results / "studies" / study
    summary = StudySummary.read(folder / "study.json")
    searched = [stage.name for stage in summary.stages]
    stages = read_tables([folder / "stages" / stage / "table.parquet" for stage in [*searched, CONFIRM]])
    optional = {name: folder / f"{name}.parquet" for name in ("history", "answers", "curves")}
    asked = [folder / "stages" / stage / "answers.parquet" for stage in [*searched, CONFIRM]]
    asked = [path for path in asked if path.exists()]
    metrics, search = read_tables([folder / "metrics.parquet"]), read_tables([folder / "search.parquet"])
    content = report_content(
        summary,
        Recommended.read(folder / "recommended.json"),
        stages,
        [Decision.read(folder / "stages" / stage / "decision.json") for stage in searched],
        read_tables([folder / "improvements.parquet"]),
        metrics,
        read_tables([folder / "checks.parquet"]),
        MeasuredRuns(results / "runs", study),
        search=search,
        asked=read_tables(asked) if asked else None,
        drawn={path.stem for path in (folder / "charts").glob("*.svg")},
        # archives of earlier versions may lack the curves
        **{name: read_tables([path]) for name, path in optional.items() if name != "curves" or path.exists()},
    )
    write_report(folder, content, folder / "charts", {"stages": stages, "metrics": metrics, "search": search})
