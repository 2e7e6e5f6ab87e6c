"""Keeps a study's answer for the current versions of its engines, beside the answers for other versions."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search.decision import Decision
from servelab.search.kept_answers import make_answer, study_versions, versions_id
from servelab.search.project import load_project
from servelab.search.recommended import Recommended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    parser.add_argument("--recommended", type=Path, required=True, help="recommended.json")
    parser.add_argument("--decision", type=Path, required=True, help="decision.json of the last stage that decides")
    parser.add_argument("--table", type=Path, required=True, help="table of the reserved stage `confirm`")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--output", type=Path, required=True, help="answers/<versions_id>.json")
    arguments = parser.parse_args()

    project = load_project(arguments.study, arguments.root)
    wanted = versions_id(study_versions(project))
    if arguments.output.stem != wanted:
        raise ConfigError(f"{arguments.output}: the answer for the study's versions is {wanted}.json")
    recommended = Recommended.read(arguments.recommended)
    proved = recommended.proof and recommended.proof.candidate
    answer = make_answer(
        project,
        recommended,
        proved or Decision.read(arguments.decision).winner.candidate,
        read_table(arguments.table, schemas.STAGE_TABLE),
        arguments.runs,
    )
    answer.write(arguments.output)


if __name__ == "__main__":
    run(main)
