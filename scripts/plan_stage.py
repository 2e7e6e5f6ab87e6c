"""Plans one stage of a study: which runs it needs, each with its complete specification."""

import argparse
from pathlib import Path

from servelab import schemas, search
from servelab.cli import run
from servelab.decide import Decision
from servelab.files import write_json
from servelab.parse import read_table
from servelab.plan import Plan
from servelab.project import load_project
from servelab.search import PastStage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--stage", required=True)
    parser.add_argument("--past-plans", type=Path, nargs="*", default=[], help="plans of all stages before, in order")
    parser.add_argument("--past-decisions", type=Path, nargs="*", default=[], help="their decisions")
    parser.add_argument("--past-tables", type=Path, nargs="*", help="their tables, where the study has a `stop_when`")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    tables = [read_table(path, schemas.STAGE_TABLE) for path in arguments.past_tables or []]
    plans = [Plan.model_validate_json(path.read_bytes()) for path in arguments.past_plans]
    decisions = [Decision.model_validate_json(path.read_bytes()) for path in arguments.past_decisions]
    past = [PastStage(*stage) for stage in zip(plans, decisions, tables or [None] * len(plans), strict=True)]
    plan = search.plan(load_project(arguments.study, arguments.root), arguments.stage, past)
    write_json(arguments.output, plan.model_dump(mode="json"))


if __name__ == "__main__":
    run(main)
