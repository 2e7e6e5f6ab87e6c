"""Writes the name of a finished study's archive, which has the day on which its last run ended."""

import argparse
from pathlib import Path

from servelab.archive.contents import archive_name, date_of
from servelab.archive.workflow_source import read_source
from servelab.core.cli import run
from servelab.core.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", required=True, help="studies/<study> or recorded/<study>")
    parser.add_argument("--root", type=Path, default=Path(), help="folder of the project")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    date = date_of(arguments.root, arguments.results, arguments.search, read_source(arguments.root))
    write_json(arguments.output, {"archive": archive_name(arguments.search, date)})


if __name__ == "__main__":
    run(main)
