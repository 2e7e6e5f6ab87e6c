"""Writes the study's answer: the serving command to use and its gain on every workload."""

import argparse
from pathlib import Path

import pandas as pd

from servelab import schemas
from servelab.cli import run
from servelab.describe import workload_titles
from servelab.files import write_json
from servelab.parse import read_table
from servelab.recommend import recommend
from servelab.searched import load_searched, read_plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--plan", type=Path, required=True, help="plan of the reserved stage `comparison`")
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="table.parquet of every stage")
    parser.add_argument("--rounds", type=Path, nargs="+", required=True, help="rounds.parquet of every stage")
    parser.add_argument("--improvements", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="folder of the runs, results/runs; without it nothing ran here")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    rounds = pd.concat([read_table(path, schemas.ROUNDS) for path in arguments.rounds], ignore_index=True)
    recommended = recommend(
        load_searched(arguments.study),
        read_plan(arguments.plan),
        pd.concat([read_table(path, schemas.STAGE_TABLE) for path in arguments.tables], ignore_index=True),
        rounds.drop_duplicates(["run_id", "workload", "metric", "round"]),
        read_table(arguments.improvements, schemas.IMPROVEMENTS),
        arguments.runs,
        workload_titles(arguments.study, arguments.root),
    )
    write_json(arguments.output, recommended)


if __name__ == "__main__":
    run(main)
