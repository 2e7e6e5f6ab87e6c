"""Plans one stage of a study: the runs that it needs, each with its complete specification."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search import strategies as search
from servelab.search.decision import Decision
from servelab.search.project import load_project
from servelab.search.proof_plan import FirstPairs
from servelab.search.strategy import PastStage
from servelab.study.plan import Plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    parser.add_argument("--stage", required=True)
    parser.add_argument(
        "--past-plans", type=Path, nargs="*", default=[], help="plans of the search's stages before this one"
    )
    parser.add_argument("--past-decisions", type=Path, nargs="*", default=[], help="their decisions")
    parser.add_argument("--past-tables", type=Path, nargs="*", default=[], help="their tables")
    parser.add_argument("--first-plan", type=Path, help="for `confirm`, the plan of `confirm-first`")
    parser.add_argument("--first-table", type=Path, help="its table")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    plans = [Plan.read(path) for path in arguments.past_plans]
    decisions = [Decision.read(path) for path in arguments.past_decisions]
    tables = [read_table(path, schemas.STAGE_TABLE) for path in arguments.past_tables]
    past = [PastStage(*stage) for stage in zip(plans, decisions, tables, strict=True)]
    first = None
    if arguments.first_plan:
        first = FirstPairs(Plan.read(arguments.first_plan), read_table(arguments.first_table, schemas.STAGE_TABLE))
    plan = search.plan(load_project(arguments.study, arguments.root), arguments.stage, past, first)
    plan.write(arguments.output)


if __name__ == "__main__":
    run(main)
