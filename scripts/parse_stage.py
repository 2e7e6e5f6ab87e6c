"""Parses the raw records of a stage's runs into Parquet tables; a run whose figures were kept is not parsed again."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables.io import write_table
from servelab.results.kept_figures import KeptFigures
from servelab.results.parse import TABLES, parse_plan
from servelab.study.plan import Plan
from servelab.study.study import load_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--kept", type=Path, help="folder of the study's kept figures, results/parsed/<study>")
    parser.add_argument("--processes", type=int, default=1, help="most processes, where there are many runs to parse")
    for name in TABLES:
        parser.add_argument(f"--output-{name}", type=Path, required=True)
    arguments = parser.parse_args()

    plan = Plan.read(arguments.plan)
    study = load_study(arguments.study)
    kept = arguments.kept and KeptFigures.of(study, arguments.kept)
    for name, table in parse_plan(study, plan, arguments.runs, kept, arguments.processes).items():
        write_table(table, getattr(arguments, f"output_{name}"))


if __name__ == "__main__":
    run(main, without_pandas=True)
