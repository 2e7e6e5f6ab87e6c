"""Parses the raw records of a stage's runs into Parquet tables."""

import argparse
from pathlib import Path

from servelab.cli import run
from servelab.parse import parse_plan, write_table
from servelab.plan import Plan
from servelab.study import load_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--output-table", type=Path, required=True)
    parser.add_argument("--output-metrics", type=Path, required=True)
    parser.add_argument("--output-rounds", type=Path, required=True)
    arguments = parser.parse_args()

    plan = Plan.model_validate_json(arguments.plan.read_text(encoding="utf-8"))
    table, metrics, rounds = parse_plan(load_study(arguments.study), plan, arguments.runs)
    write_table(table, arguments.output_table)
    write_table(metrics, arguments.output_metrics)
    write_table(rounds, arguments.output_rounds)


if __name__ == "__main__":
    run(main)
