"""Prints a study's recommended serving command, its gain on every workload, and where the report is."""

import argparse
import json
from pathlib import Path

from servelab.cli import run
from servelab.recommend import render_recommendation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", type=Path, nargs="+", help="results/studies/<study>")
    arguments = parser.parse_args()

    for study in arguments.studies:
        recommended = json.loads((study / "recommended.json").read_text(encoding="utf-8"))
        print(f"\n{render_recommendation(recommended, study / 'report.html')}\n")


if __name__ == "__main__":
    run(main)
