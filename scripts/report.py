"""Pages: a study's charts, report and tables, and the index over all studies, finished or not."""

from __future__ import annotations

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.report.charts.write import draw_charts
from servelab.report.claims_section import RecordedLogs
from servelab.report.index_page import index_page
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.page import write_page
from servelab.report.render import write_report
from servelab.search.recommendation_text import answer_text
from servelab.search.recommended import Recommended
from servelab.study.project import is_live, study_path


def render_report(rule: RuleJob) -> None:
    search, charts = rule.wildcards.search, rule.output.charts
    origin = MeasuredRuns(Path("results/runs")) if is_live(search) else RecordedLogs(study_path(search))
    draw_charts(rule.input, charts)
    write_report(rule.input, origin, charts, rule.output.html.parent)
    print(f"{rule.output.html}: {answer_text(Recommended.read(rule.input.recommended)).text}")


def render_index(rule: RuleJob) -> None:
    page = index_page(Path("results"), rule.params.expected.split())
    write_page(page, rule.output.html, rule.output.markdown)


if __name__ == "__main__":
    run_rule(globals())
