"""Compares the versions of a study's engines: the same configurations side by side, and the answers."""

import argparse
from pathlib import Path

from servelab.answers import read_answers
from servelab.cli import run
from servelab.history import answers_table, build_history
from servelab.parse import write_table
from servelab.plan import Plan
from servelab.project import load_project


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--plans", type=Path, nargs="+", required=True, help="plan.json of all stages")
    parser.add_argument("--answers", type=Path, required=True, help="folder of the answers kept")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--output-history", type=Path, required=True)
    parser.add_argument("--output-answers", type=Path, required=True)
    arguments = parser.parse_args()

    project = load_project(arguments.study, arguments.root)
    plans = [Plan.model_validate_json(path.read_bytes()) for path in arguments.plans]
    write_table(build_history(project, plans, arguments.runs), arguments.output_history)
    write_table(answers_table(project, read_answers(arguments.answers)), arguments.output_answers)


if __name__ == "__main__":
    run(main)
