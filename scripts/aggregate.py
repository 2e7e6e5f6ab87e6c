"""Aggregates all stages of a study: its metrics, its checks, and percentages against the baseline."""

import pyarrow as pa

from servelab.core.cli import RuleJob, run_rule
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_tables, write_table
from servelab.results.compare_with_baseline import improvements


def main(rule: RuleJob) -> None:
    table = read_tables(rule.input.tables, schemas.STAGE_TABLE)
    rounds = read_tables(rule.input.rounds, schemas.ROUNDS)
    metrics = read_tables(rule.input.metrics, schemas.METRICS).drop_duplicates(["run_id", "workload", "metric"])
    checks = read_tables(rule.input.checks, schemas.CHECKS).drop_duplicates(["run_id", "workload", "check"])

    write_table(pa.Table.from_pandas(metrics, schema=schemas.METRICS, preserve_index=False), rule.output.metrics)
    write_table(pa.Table.from_pandas(checks, schema=schemas.CHECKS, preserve_index=False), rule.output.checks)
    write_table(improvements(table, rounds, metrics), rule.output.improvements)


if __name__ == "__main__":
    run_rule(main)
