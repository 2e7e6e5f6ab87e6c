"""Writes the curves of a study: figures of every configuration at every point."""

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_tables, write_table
from servelab.results.curves import curves_table
from servelab.study.project import StudySummary


def main(rule: RuleJob) -> None:
    tables, points = (read_tables(paths, schemas.STAGE_TABLE) for paths in (rule.input.tables, rule.input.points))
    write_table(curves_table(StudySummary.read(rule.input.study), tables, points), rule.output.curves)


if __name__ == "__main__":
    run_rule(main)
