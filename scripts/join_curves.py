"""Writes the curves of a study: figures of every configuration at every point."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables import schemas
from servelab.metrics.tables.io import read_tables, write_table
from servelab.results.curves import curves_table
from servelab.study.project import StudySummary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="study.json")
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="table.parquet of every stage, in order")
    parser.add_argument("--points", type=Path, nargs="+", required=True, help="points.parquet of every stage, in order")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    tables, points = (read_tables(paths, schemas.STAGE_TABLE) for paths in (arguments.tables, arguments.points))
    write_table(curves_table(StudySummary.read(arguments.study), tables, points), arguments.output)


if __name__ == "__main__":
    run(main)
