"""Plans which candidate of a stage is measured again beside the incumbent, if any."""

import argparse
from pathlib import Path

from servelab import schemas
from servelab.cli import run
from servelab.deciding_pair import choose_pair
from servelab.files import write_json
from servelab.parse import read_table
from servelab.plan import Plan
from servelab.search import decide
from servelab.study import load_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--rounds", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    study = load_study(arguments.study)
    plan = Plan.model_validate_json(arguments.plan.read_text(encoding="utf-8"))
    by_runs_alone = decide(
        study, plan, read_table(arguments.table, schemas.STAGE_TABLE), read_table(arguments.rounds, schemas.ROUNDS)
    )
    write_json(arguments.output, choose_pair(study, plan, by_runs_alone).model_dump(mode="json"))


if __name__ == "__main__":
    run(main)
