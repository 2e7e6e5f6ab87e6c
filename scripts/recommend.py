"""Writes the study's answer: the serving command to use, and what its proof found on every workload."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables import schemas
from servelab.metrics.tables.curve_schema import CURVES
from servelab.metrics.tables.io import read_table
from servelab.search.candidates_table import workload_titles
from servelab.search.decision import Decision
from servelab.search.proof_plan import promised_percent, promised_places
from servelab.search.recommend import recommend
from servelab.search.strategy import PastStage
from servelab.study.plan import Plan
from servelab.study.project import load_searched, read_plan
from servelab.study.study import Study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    parser.add_argument("--plans", type=Path, nargs="+", required=True, help="plan.json of every stage, in order")
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="table.parquet of every stage")
    parser.add_argument(
        "--decisions", type=Path, nargs="+", required=True, help="decision.json of every stage but the last"
    )
    parser.add_argument("--improvements", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="folder of the runs, results/runs; leave it out if nothing ran here")
    parser.add_argument("--curves", type=Path, required=True, help="curves.parquet")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    study = load_searched(arguments.study)
    *plans, last = [read_plan(path) for path in arguments.plans]
    *tables, table = [read_table(path, schemas.STAGE_TABLE) for path in arguments.tables]
    decisions = [Decision.read(path) for path in arguments.decisions]
    past = [
        PastStage(plan, decision, found)
        for plan, decision, found in zip(plans, decisions, tables, strict=True)
        if isinstance(plan, Plan)
    ]
    promised: tuple[float | None, str | None] = (None, None)
    if isinstance(study, Study) and isinstance(last, Plan):
        proposed = last.candidates[-1].configuration
        promised = promised_percent(study, past, proposed), promised_places(study, past, proposed)
    recommended = recommend(
        study,
        last,
        table,
        read_table(arguments.improvements, schemas.IMPROVEMENTS),
        arguments.runs,
        workload_titles(arguments.study, arguments.root),
        *promised,
        decisions,
        read_table(arguments.curves, CURVES),
    )
    recommended.write(arguments.output)


if __name__ == "__main__":
    run(main)
