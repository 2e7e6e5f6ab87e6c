"""Compares the versions of a study's engines: the same configurations side by side, and the study's answers."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables.io import write_table
from servelab.search.kept_answers import read_answers
from servelab.search.project import load_project
from servelab.search.versions import answers_table, build_history
from servelab.study.plan import Plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    parser.add_argument("--plans", type=Path, nargs="+", required=True, help="plan.json of all stages")
    parser.add_argument("--answers", type=Path, required=True, help="folder of the kept answers")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--output-history", type=Path, required=True)
    parser.add_argument("--output-answers", type=Path, required=True)
    parser.add_argument("--without-imported", action="store_true", help="leave out runs that were not measured here")
    arguments = parser.parse_args()

    project = load_project(arguments.study, arguments.root)
    plans = [Plan.read(path) for path in arguments.plans]
    write_table(
        build_history(project, plans, arguments.runs, use_imported=not arguments.without_imported),
        arguments.output_history,
    )
    write_table(answers_table(project, read_answers(arguments.answers)), arguments.output_answers)


if __name__ == "__main__":
    run(main)
