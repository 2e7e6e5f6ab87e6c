"""Writes what the report says of a study: titles, model, hardware, engines, objective, protocol."""

import argparse
from pathlib import Path

from servelab.cli import run
from servelab.describe import describe, workload_titles
from servelab.files import write_json
from servelab.searched import load_searched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="config/studies/X.yaml or config/recorded/X")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that config/ and envs/ lie in")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    titles = workload_titles(arguments.study, arguments.root)
    write_json(arguments.output, describe(load_searched(arguments.study), titles))


if __name__ == "__main__":
    run(main)
