"""Aggregates all stages of a study: its metrics, and percentages against the baseline."""

import argparse
from pathlib import Path

import pandas as pd
import pyarrow as pa

from servelab import schemas
from servelab.aggregate import improvements
from servelab.cli import run
from servelab.parse import read_table, write_table


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

    table = pd.concat([read_table(path, schemas.STAGE_TABLE) for path in arguments.tables], ignore_index=True)
    rounds = pd.concat([read_table(path, schemas.ROUNDS) for path in arguments.rounds], ignore_index=True)
    metrics = pd.concat([read_table(path, schemas.METRICS) for path in arguments.metrics], ignore_index=True)
    checks = pd.concat([read_table(path, schemas.CHECKS) for path in arguments.checks], ignore_index=True)
    checks = checks.drop_duplicates(["run_id", "workload", "check"])
    metrics = metrics.drop_duplicates(["run_id", "workload", "metric"])
    write_table(pa.Table.from_pandas(metrics, schema=schemas.METRICS, preserve_index=False), arguments.output_metrics)
    write_table(pa.Table.from_pandas(checks, schema=schemas.CHECKS, preserve_index=False), arguments.output_checks)
    write_table(improvements(table, rounds, metrics), arguments.output_improvements)


if __name__ == "__main__":
    run(main)
