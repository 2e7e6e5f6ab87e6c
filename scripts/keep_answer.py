"""Keeps a study's answer under the versions that its engines have now, beside those under other versions."""

import argparse
import json
from pathlib import Path

from servelab import schemas
from servelab.answers import make_answer, study_versions, versions_id
from servelab.cli import run
from servelab.errors import ConfigError
from servelab.files import write_json
from servelab.parse import read_table
from servelab.project import load_project


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--recommended", type=Path, required=True, help="recommended.json")
    parser.add_argument("--decision", type=Path, required=True, help="decision.json of the last stage that decides")
    parser.add_argument("--table", type=Path, required=True, help="table of the reserved stage `comparison`")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--output", type=Path, required=True, help="answers/<id of the set of versions>.json")
    arguments = parser.parse_args()

    project = load_project(arguments.study, arguments.root)
    wanted = versions_id(study_versions(project))
    if arguments.output.stem != wanted:
        raise ConfigError(f"{arguments.output}: the study's versions are those of {wanted}.json")
    answer = make_answer(
        project,
        json.loads(arguments.recommended.read_bytes()),
        json.loads(arguments.decision.read_bytes())["winner"]["candidate"],
        read_table(arguments.table, schemas.STAGE_TABLE),
        arguments.runs,
    )
    write_json(arguments.output, answer.model_dump(mode="json"))


if __name__ == "__main__":
    run(main)
