"""Decides a stage: does a candidate take over from the incumbent, and why?"""

import argparse
from pathlib import Path

from servelab import schemas
from servelab.cli import run
from servelab.deciding_pair import PlannedPair, read_pair
from servelab.files import write_json
from servelab.parse import read_table
from servelab.search import decide
from servelab.searched import load_searched, read_plan
from servelab.study import Study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--rounds", type=Path, required=True)
    parser.add_argument("--pair", type=Path, help="the stage's pair.json, where the study measures its leader again")
    parser.add_argument("--pair-status", type=Path, help="status.json of that pair, where there is one")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    study = load_searched(arguments.study)
    pair = None
    if arguments.pair_status and isinstance(study, Study):
        planned = PlannedPair.model_validate_json(arguments.pair.read_text(encoding="utf-8"))
        pair = read_pair(planned, arguments.pair_status.parent, study)
    decision = decide(
        study,
        read_plan(arguments.plan),
        read_table(arguments.table, schemas.STAGE_TABLE),
        read_table(arguments.rounds, schemas.ROUNDS),
        pair,
    )
    write_json(arguments.output, decision.model_dump(mode="json"))


if __name__ == "__main__":
    run(main)
