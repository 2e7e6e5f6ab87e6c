"""Reduces the records and the telemetry of the proof's runs to the few rows that charts draw."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_table, write_table
from servelab.results.curves import condense


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, required=True, help="table.parquet of the reserved stage `confirm`")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs, results/runs")
    parser.add_argument("--output-distributions", type=Path, required=True)
    parser.add_argument("--output-device-series", type=Path, required=True)
    arguments = parser.parse_args()

    tables = condense(read_table(arguments.table, schemas.STAGE_TABLE), arguments.runs)
    write_table(tables["distributions"], arguments.output_distributions)
    write_table(tables["device_series"], arguments.output_device_series)


if __name__ == "__main__":
    run(main)
