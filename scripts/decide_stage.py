"""Decides a stage: whether a candidate replaces the incumbent, and why."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search.strategies import decide
from servelab.study.project import load_searched, read_plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    study = load_searched(arguments.study)
    decision = decide(study, read_plan(arguments.plan), read_table(arguments.table, schemas.STAGE_TABLE))
    decision.write(arguments.output)
    print(f"{decision.winner.candidate} goes on: {decision.reason}")


if __name__ == "__main__":
    run(main)
