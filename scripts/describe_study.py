"""Writes the description of a study for its report: titles, model, hardware, engines, objective, protocol."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.search.candidates_table import describe, workload_titles
from servelab.study.project import load_searched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    titles = workload_titles(arguments.study, arguments.root)
    describe(load_searched(arguments.study), titles).write(arguments.output)


if __name__ == "__main__":
    run(main)
