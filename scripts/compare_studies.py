"""Compares two studies: engines, versions, dates or sites side by side, and what is not comparable."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.metrics.tables.io import write_table
from servelab.report.compare.comparison_table import compare_studies
from servelab.report.compare.page import comparison_page, summary
from servelab.report.compare.sides import read_side
from servelab.report.compare.wanted import names_of
from servelab.report.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs=2, type=Path, help="folders of two studies: results/studies/<study>")
    parser.add_argument("--names", nargs=2, metavar=("A", "B"), help="their names; default: by their folders")
    parser.add_argument("--output", type=Path, help="folder; default: results/comparisons/<a>--<b>")
    arguments = parser.parse_args()

    names = arguments.names or names_of(arguments.studies)
    folder = arguments.output or Path("results/comparisons") / "--".join(names)
    sides = [read_side(path, name) for path, name in zip(arguments.studies, names, strict=True)]
    comparison = compare_studies(sides[0], sides[1])
    write_table(comparison.table, folder / "comparison.parquet")
    write_page(comparison_page(comparison, folder), folder / "comparison.html", folder / "comparison.md")
    print(summary(comparison))
    for row in comparison.table.to_pylist():
        if row["is_objective"] and row["kind"] == "configuration":
            print(
                f"    {row['candidate_a'] or row['candidate_b']} on {row['workload']}: {row['verdict']}: {row['why']}"
            )
    print(f"Page: {folder / 'comparison.html'}")


if __name__ == "__main__":
    run(main)
