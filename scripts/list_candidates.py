"""Writes the table of a study's candidates: outcome, reason and cost of each, and the stages that share its runs."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, write_table
from servelab.search.candidates_table import CandidatesStage, candidates_table
from servelab.search.decision import Decision
from servelab.study.plan import Plan
from servelab.study.project import load_searched, read_plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--plans", type=Path, nargs="+", required=True, help="plan.json of every stage, in order")
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="table.parquet of every stage")
    parser.add_argument(
        "--decisions", type=Path, nargs="+", required=True, help="decision.json of every stage but the last"
    )
    parser.add_argument("--first-plan", type=Path, help="plan of `confirm-first`, of a live study")
    parser.add_argument("--first-table", type=Path, help="its table")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    decisions = [Decision.read(path) for path in arguments.decisions]
    stages = [
        CandidatesStage(read_plan(plan), read_table(table, schemas.STAGE_TABLE), decision)
        for plan, table, decision in zip(arguments.plans, arguments.tables, [*decisions, None], strict=True)
    ]
    last = stages[-1].plan
    if arguments.first_plan and isinstance(last, Plan) and last.left_out:  # else `confirm` has all of its runs
        first = read_plan(arguments.first_plan), read_table(arguments.first_table, schemas.STAGE_TABLE)
        stages.insert(-1, CandidatesStage(*first, None))
    study = load_searched(arguments.study)
    write_table(candidates_table(study, stages), arguments.output)


if __name__ == "__main__":
    run(main)
