"""Decides a stage: whether a candidate replaces the incumbent, and why."""

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table
from servelab.search.strategies import decide
from servelab.study.project import load_searched, read_plan, study_path


def main(rule: RuleJob) -> None:
    study = load_searched(study_path(rule.wildcards.search))
    decision = decide(study, read_plan(rule.input.plan), read_table(rule.input.table, schemas.STAGE_TABLE))
    decision.write(rule.output.decision)
    print(f"{decision.winner.candidate} goes on: {decision.reason}")


if __name__ == "__main__":
    run_rule(main)
