"""Writes a study's report, as Markdown and as one self-contained HTML file, and its tables as CSV and Parquet."""

from __future__ import annotations

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import read_tables
from servelab.report.claims_section import RecordedLogs
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import report_content, write_report
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary, is_live, study_path

TABLES = ("metrics", "search", "improvements", "checks", "claims", "history", "answers", "curves", "device_series")


def main(rule: RuleJob) -> None:
    found, search = rule.input, rule.wildcards.search
    study = StudySummary.read(found.study)
    tables = {name: read_tables([found[name]]) for name in TABLES if name in found}
    stages = read_tables(found.stages)
    content = report_content(
        study,
        Recommended.read(found.recommended),
        stages,
        [Decision.read(path) for path in found.decisions],
        origin=MeasuredRuns(Path("results/runs"), study.study) if is_live(search) else RecordedLogs(study_path(search)),
        asked=read_tables(found.asked) if found.get("asked") else None,
        drawn={path.stem for path in found.charts.glob("*.svg")},
        **tables,
    )
    write_report(rule.output.html.parent, content, found.charts, {"stages": stages} | tables)


if __name__ == "__main__":
    run_rule(main)
