"""Writes the study's answer: the serving command to use and its gain on every workload."""

import argparse
from pathlib import Path

from servelab import schemas
from servelab.cli import run
from servelab.files import write_json
from servelab.parse import read_table
from servelab.plan import Plan
from servelab.project import load_project
from servelab.recommend import recommend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--plan", type=Path, required=True, help="plan of the reserved stage `comparison`")
    parser.add_argument("--table", type=Path, required=True, help="its table")
    parser.add_argument("--improvements", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    project = load_project(arguments.study, arguments.root)
    recommended = recommend(
        project.study,
        Plan.model_validate_json(arguments.plan.read_text(encoding="utf-8")),
        read_table(arguments.table, schemas.STAGE_TABLE),
        read_table(arguments.improvements, schemas.IMPROVEMENTS),
        arguments.runs,
        {name: project.workloads[name].title for name in project.study.workloads},
    )
    write_json(arguments.output, recommended)


if __name__ == "__main__":
    run(main)
