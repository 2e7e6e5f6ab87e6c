"""Pages: a study's charts, report and tables, and the index over all studies, finished or not."""

from __future__ import annotations

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import read_tables
from servelab.report.charts.write import study_charts, write_chart
from servelab.report.claims_section import RecordedLogs
from servelab.report.index_page import index_page
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.page import write_page
from servelab.report.render import report_content, write_report
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary, is_live, study_path

TABLES = ("metrics", "search", "improvements", "checks", "claims", "history", "answers", "curves", "device_series")
OF_CHARTS = ("timeline", "device_series")


def render_report(rule: RuleJob) -> None:
    found, search, charts = rule.input, rule.wildcards.search, rule.output.charts
    study, recommended = StudySummary.read(found.study), Recommended.read(found.recommended)
    decisions = [Decision.read(path) for path in found.decisions]
    stages, proof = read_tables(found.stages), recommended.proof
    tables = {name: read_tables([found[name]]) for name in TABLES if name in found}

    charts.mkdir(parents=True, exist_ok=True)
    drawn = study_charts(
        study,
        stages,
        decisions,
        tables["improvements"],
        proof and proof.promised_change_percent,
        {name: read_tables([found[name]]) for name in OF_CHARTS if name in found},
        curves=tables["curves"],
    )
    for chart, frame in drawn:
        write_chart(chart, frame, {kind: charts / f"{chart.name}.{kind}" for kind in ("svg", "png", "json")})
    content = report_content(
        study,
        recommended,
        stages,
        decisions,
        origin=MeasuredRuns(Path("results/runs"), study.study) if is_live(search) else RecordedLogs(study_path(search)),
        asked=read_tables(found.asked) if found.get("asked") else None,
        drawn={path.stem for path in charts.glob("*.svg")},
        **tables,
    )
    write_report(rule.output.html.parent, content, charts, {"stages": stages} | tables)


def render_index(rule: RuleJob) -> None:
    page = index_page(Path("results"), rule.params.expected.split())
    write_page(page, rule.output.html, rule.output.markdown)


if __name__ == "__main__":
    run_rule(globals())
