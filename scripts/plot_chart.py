"""Draws one chart from tables of a study."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.chart_files import FileFormat, add_decisions, read_tables, select, write_chart
from servelab.charts import CHARTS
from servelab.cli import run
from servelab.errors import ConfigError
from servelab.report.inputs import Decision, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chart", required=True, help=f"one of {', '.join(CHARTS.names())}")
    parser.add_argument("--table", required=True, nargs="+", type=Path, help="Parquet files, in the stages' order")
    parser.add_argument("--decision", default=[], nargs="+", type=Path, help="decision.json of the stages")
    parser.add_argument("--where", default=[], nargs="+", metavar="COLUMN=VALUE", help="keep only these rows")
    parser.add_argument("--output-svg", required=True, type=Path)
    parser.add_argument("--output-png", required=True, type=Path)
    parser.add_argument("--output-json", required=True, type=Path, help="the Vega-Lite specification with its data")
    args = parser.parse_args()

    chart = CHARTS.get(args.chart)
    for condition in args.where:
        if "=" not in condition:
            raise ConfigError(f"--where {condition}: give COLUMN=VALUE")
    frame = read_tables(args.table)
    if args.decision:
        frame = add_decisions(frame, [read(path, Decision) for path in args.decision])
    frame = select(frame, dict(condition.split("=", 1) for condition in args.where))
    outputs: dict[FileFormat, Path] = {"svg": args.output_svg, "png": args.output_png, "json": args.output_json}
    write_chart(chart, frame, outputs)


if __name__ == "__main__":
    run(main)
