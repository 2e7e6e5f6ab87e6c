"""Aggregates all stages of a study: its metrics, and percentages against the baseline."""

import argparse
from pathlib import Path

import pyarrow as pa

from servelab.core.cli import run
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_tables, write_table
from servelab.results.compare_with_baseline import improvements


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="table.parquet of every stage")
    parser.add_argument("--metrics", type=Path, nargs="+", required=True, help="metrics.parquet of every stage")
    parser.add_argument("--rounds", type=Path, nargs="+", required=True, help="rounds.parquet of every stage")
    parser.add_argument("--checks", type=Path, nargs="+", required=True, help="checks.parquet of every stage")
    parser.add_argument("--output-metrics", type=Path, required=True)
    parser.add_argument("--output-checks", type=Path, required=True)
    parser.add_argument("--output-improvements", type=Path, required=True)
    arguments = parser.parse_args()

    table = read_tables(arguments.tables, schemas.STAGE_TABLE)
    rounds = read_tables(arguments.rounds, schemas.ROUNDS)
    metrics = read_tables(arguments.metrics, schemas.METRICS)
    checks = read_tables(arguments.checks, schemas.CHECKS)
    checks = checks.drop_duplicates(["run_id", "workload", "check"])
    metrics = metrics.drop_duplicates(["run_id", "workload", "metric"])
    write_table(pa.Table.from_pandas(metrics, schema=schemas.METRICS, preserve_index=False), arguments.output_metrics)
    write_table(pa.Table.from_pandas(checks, schema=schemas.CHECKS, preserve_index=False), arguments.output_checks)
    write_table(improvements(table, rounds, metrics), arguments.output_improvements)


if __name__ == "__main__":
    run(main)
