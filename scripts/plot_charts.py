"""Draws all charts of a study's report, each as SVG, PNG and Vega-Lite JSON."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables.io import read_tables
from servelab.report.charts.write import study_charts, write_chart
from servelab.search.decision import Decision
from servelab.study.project import StudySummary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True, type=Path, help="study.json")
    parser.add_argument("--stages", required=True, nargs="+", type=Path, help="table.parquet of all stages, in order")
    parser.add_argument("--decisions", required=True, nargs="+", type=Path, help="decision.json of the stages")
    parser.add_argument("--improvements", required=True, type=Path)
    parser.add_argument("--history", type=Path, help="history.parquet, of a live study")
    parser.add_argument("--curves", type=Path, help="curves.parquet")
    parser.add_argument("--timeline", type=Path, help="timeline.parquet of the comparison, of a live study")
    parser.add_argument("--distributions", type=Path, help="distributions.parquet, of a live study")
    parser.add_argument("--device-series", type=Path, help="device_series.parquet, of a live study")
    parser.add_argument("--output", required=True, type=Path, help="folder of the charts")
    args = parser.parse_args()

    of_runs = {name: getattr(args, name) for name in ("timeline", "distributions", "device_series")}
    charts = study_charts(
        StudySummary.read(args.study),
        read_tables(args.stages),
        [Decision.read(path) for path in args.decisions],
        read_tables([args.improvements]),
        read_tables([args.history]) if args.history else None,
        {name: read_tables([path]) for name, path in of_runs.items() if path},
        curves=read_tables([args.curves]) if args.curves else None,
    )
    args.output.mkdir(parents=True, exist_ok=True)
    for stem, chart, frame in charts:
        write_chart(chart, frame, {kind: args.output / f"{stem}.{kind}" for kind in ("svg", "png", "json")})


if __name__ == "__main__":
    run(main)
