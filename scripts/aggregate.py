"""Aggregates all stages of a study: description, metrics, checks, curves, and percentages against the baseline."""

import pyarrow as pa

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_tables, write_table
from servelab.results.compare_with_baseline import improvements
from servelab.results.curves import curves_table
from servelab.search.candidates_table import describe, workload_titles
from servelab.study.project import load_searched, study_path


def main(rule: RuleJob) -> None:
    path = study_path(rule.wildcards.search)
    study = describe(load_searched(path), workload_titles(path))
    table, points = (read_tables(paths, schemas.STAGE_TABLE) for paths in (rule.input.tables, rule.input.points))
    rounds = read_tables(rule.input.rounds, schemas.ROUNDS)
    metrics = read_tables(rule.input.metrics, schemas.METRICS).drop_duplicates(["run_id", "workload", "metric"])
    checks = read_tables(rule.input.checks, schemas.CHECKS).drop_duplicates(["run_id", "workload", "check"])

    study.write(rule.output.study)
    write_table(curves_table(study, table, points), rule.output.curves)
    write_table(pa.Table.from_pandas(metrics, schema=schemas.METRICS, preserve_index=False), rule.output.metrics)
    write_table(pa.Table.from_pandas(checks, schema=schemas.CHECKS, preserve_index=False), rule.output.checks)
    write_table(improvements(table, rounds, metrics), rule.output.improvements)


if __name__ == "__main__":
    run_rule(main)
