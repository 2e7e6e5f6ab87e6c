"""Writes the study's answer: the serving command to use, and what its proof found on every workload."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search.candidates_table import workload_titles
from servelab.search.decision import Decision
from servelab.search.proof_plan import promised_percent
from servelab.search.recommend import recommend
from servelab.search.strategy import PastStage
from servelab.study.plan import Plan
from servelab.study.project import is_live, load_searched, read_plan, study_path
from servelab.study.study import Study


def main(rule: RuleJob) -> None:
    path, runs = study_path(rule.wildcards.search), Path("results/runs")
    study = load_searched(path)
    *plans, last = [read_plan(path) for path in rule.input.plans]
    *tables, table = [read_table(path, schemas.STAGE_TABLE) for path in rule.input.tables]
    decisions = [Decision.read(path) for path in rule.input.decisions]
    past = [
        PastStage(plan, decision, found)
        for plan, decision, found in zip(plans, decisions, tables, strict=True)
        if isinstance(plan, Plan)
    ]
    promised = None
    if isinstance(study, Study) and isinstance(last, Plan):
        promised = promised_percent(study, past, last.candidates[-1].configuration)
    recommended = recommend(
        study,
        last,
        table,
        read_table(rule.input.improvements, schemas.IMPROVEMENTS),
        runs if is_live(rule.wildcards.search) else None,
        workload_titles(path),
        promised,
        decisions,
        read_table(rule.input.curves, schemas.CURVES),
    )
    recommended.write(rule.output.recommended)


if __name__ == "__main__":
    run_rule(main)
