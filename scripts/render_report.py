"""Writes a study's report, as Markdown and as one self-contained HTML file, and its tables as CSV and Parquet."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.core.files import write_text
from servelab.metrics.tables.io import read_tables
from servelab.report.claims_section import RecordedLogs
from servelab.report.measured_runs import MeasuredRuns
from servelab.report.render import report_content, report_html, report_markdown
from servelab.report.side_files import write_card, write_tables
from servelab.search.decision import Decision
from servelab.search.recommended import Recommended
from servelab.study.project import StudySummary

OPTIONAL = {
    "claims": "claims.parquet, if something was published on a recorded study",
    "beside": "improvements.parquet of the other study of this name, live or recorded",
    "history": "history.parquet, of a live study",
    "answers": "answers.parquet, of a live study",
    "curves": "curves.parquet",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True, type=Path, help="study.json")
    parser.add_argument("--stages", required=True, nargs="+", type=Path, help="table.parquet of all stages, in order")
    parser.add_argument("--decisions", required=True, nargs="+", type=Path, help="decision.json of the stages")
    parser.add_argument("--improvements", required=True, type=Path)
    parser.add_argument("--metrics", required=True, type=Path)
    parser.add_argument("--checks", required=True, type=Path)
    parser.add_argument("--search", required=True, type=Path, help="search.parquet, the table of candidates")
    parser.add_argument("--recommended", required=True, type=Path)
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--runs", type=Path, help="results/runs, with the runs of all stages of a live study")
    origin.add_argument("--recorded", type=Path, help="folder config/recorded/<study>, whose logs were its runs")
    asked = "answers.parquet of a stage of a live study; may be given several times"
    parser.add_argument("--asked", type=Path, action="append", default=[], help=asked)
    for name, what in OPTIONAL.items():
        parser.add_argument(f"--{name}", type=Path, help=what)
    parser.add_argument("--charts-dir", required=True, type=Path)
    parser.add_argument("--output-md", required=True, type=Path)
    parser.add_argument("--output-html", required=True, type=Path)
    parser.add_argument("--output-card-md", required=True, type=Path)
    parser.add_argument("--output-card-png", required=True, type=Path)
    parser.add_argument("--output-tables", required=True, type=Path, help="folder")
    args = parser.parse_args()

    study = StudySummary.read(args.study)
    stages, metrics, search = read_tables(args.stages), read_tables([args.metrics]), read_tables([args.search])
    content = report_content(
        study,
        Recommended.read(args.recommended),
        stages,
        [Decision.read(path) for path in args.decisions],
        read_tables([args.improvements]),
        metrics,
        read_tables([args.checks]),
        RecordedLogs(args.recorded) if args.recorded else MeasuredRuns(args.runs, study.study),
        search=search,
        asked=read_tables(args.asked) if args.asked else None,
        drawn={path.stem for path in args.charts_dir.glob("*.svg")},
        **{name: read_tables([path]) for name in OPTIONAL if (path := getattr(args, name))},
    )
    write_tables(args.output_tables, content, {"stages": stages, "metrics": metrics, "search": search})
    write_card(content["card"], args.output_card_md, args.output_card_png)
    write_text(args.output_md, report_markdown(content))
    write_text(args.output_html, report_html(content, args.charts_dir))


if __name__ == "__main__":
    run(main)
