"""Writes a study's report, as Markdown and as one self-contained HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.chart_files import read_tables
from servelab.cli import run
from servelab.files import write_text
from servelab.recorded.origin import RecordedLogs
from servelab.report.inputs import Decision, Recommended, Study, read
from servelab.report.provenance import MeasuredRuns
from servelab.report.render import render_html, render_markdown, report_content


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True, type=Path, help="study.json")
    parser.add_argument("--stages", required=True, nargs="+", type=Path, help="table.parquet of all stages, in order")
    parser.add_argument("--decisions", required=True, nargs="+", type=Path, help="decision.json of the stages")
    parser.add_argument("--improvements", required=True, type=Path)
    parser.add_argument("--metrics", required=True, type=Path)
    parser.add_argument("--checks", required=True, type=Path)
    parser.add_argument("--recommended", required=True, type=Path)
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--runs", type=Path, help="results/runs, with the runs of all stages of a live study")
    origin.add_argument("--recorded", type=Path, help="folder config/recorded/<study>, whose logs were its runs")
    parser.add_argument("--claims", type=Path, help="claims.parquet, where something was published on a recorded study")
    parser.add_argument(
        "--beside", type=Path, help="improvements.parquet of the other study of this name, live or recorded"
    )
    parser.add_argument("--history", type=Path, help="history.parquet, of a live study")
    parser.add_argument("--answers", type=Path, help="answers.parquet, of a live study")
    parser.add_argument("--charts-dir", required=True, type=Path)
    parser.add_argument("--output-md", required=True, type=Path)
    parser.add_argument("--output-html", required=True, type=Path)
    args = parser.parse_args()

    study = read(args.study, Study)
    content = report_content(
        study,
        read(args.recommended, Recommended),
        read_tables(args.stages),
        [read(path, Decision) for path in args.decisions],
        read_tables([args.improvements]),
        read_tables([args.metrics]),
        read_tables([args.checks]),
        RecordedLogs(args.recorded) if args.recorded else MeasuredRuns(args.runs, study.study),
        read_tables([args.claims]) if args.claims else None,
        read_tables([args.beside]) if args.beside else None,
        read_tables([args.history]) if args.history else None,
        read_tables([args.answers]) if args.answers else None,
    )
    write_text(args.output_md, render_markdown(content))
    write_text(args.output_html, render_html(content, args.charts_dir))


if __name__ == "__main__":
    run(main)
