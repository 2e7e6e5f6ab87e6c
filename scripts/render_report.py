"""Writes a study's report, as Markdown and as one self-contained HTML file, and its tables as CSV and Parquet."""

from __future__ import annotations

from pathlib import Path

from servelab.core.rule import RuleJob, run_rule
from servelab.metrics.tables.io import read_tables
from servelab.report.claims_section import RecordedLogs
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import report_content, write_report
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary, is_live, study_path

OPTIONAL = ("claims", "history", "answers", "curves")


def main(rule: RuleJob) -> None:
    found, search = rule.input, rule.wildcards.search
    study = StudySummary.read(found.study)
    tables = {"stages": read_tables(found.stages)}
    tables |= {name: read_tables([found[name]]) for name in ("metrics", "search")}
    content = report_content(
        study,
        Recommended.read(found.recommended),
        tables["stages"],
        [Decision.read(path) for path in found.decisions],
        read_tables([found.improvements]),
        tables["metrics"],
        read_tables([found.checks]),
        MeasuredRuns(Path("results/runs"), study.study) if is_live(search) else RecordedLogs(study_path(search)),
        search=tables["search"],
        asked=read_tables(found.asked) if found.get("asked") else None,
        drawn={path.stem for path in found.charts.glob("*.svg")},
        **{name: read_tables([found[name]]) for name in OPTIONAL if name in found},
    )
    write_report(rule.output.html.parent, content, found.charts, tables)


if __name__ == "__main__":
    run_rule(main)
