"""Parses the raw records of a stage's runs into Parquet tables."""

import argparse
from pathlib import Path

from servelab.cli import run
from servelab.parse import TABLES, parse_plan, write_table
from servelab.plan import Plan
from servelab.study import load_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--processes", type=int, default=1, help="how many read runs at once, where there are many")
    for name in TABLES:
        parser.add_argument(f"--output-{name}", type=Path, required=True)
    arguments = parser.parse_args()

    plan = Plan.model_validate_json(arguments.plan.read_text(encoding="utf-8"))
    for name, table in parse_plan(load_study(arguments.study), plan, arguments.runs, arguments.processes).items():
        write_table(table, getattr(arguments, f"output_{name}"))


if __name__ == "__main__":
    run(main)
