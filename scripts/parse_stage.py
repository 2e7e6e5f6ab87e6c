"""Parses the raw records of a stage's runs into Parquet tables."""

from pathlib import Path

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables.io import write_table
from servelab.results.parse import parse_plan
from servelab.study.plan import Plan
from servelab.study.study import load_study


def main(rule: RuleJob) -> None:
    study, plan = load_study(rule.input.study), Plan.read(rule.input.plan)
    for name, table in parse_plan(study, plan, Path("results/runs")).items():
        write_table(table, rule.output[name])


if __name__ == "__main__":
    run_rule(main, without_pandas=True)
