"""Prints a study's recommended serving command, its gain on every workload, and the path of its report."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.search.recommendation_text import render_recommendation
from servelab.search.recommended import Recommended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", type=Path, nargs="+", help="results/studies/<study>")
    arguments = parser.parse_args()

    for study in arguments.studies:
        recommended = Recommended.read(study / "recommended.json")
        print(f"\n{render_recommendation(recommended, study / 'report.html')}\n")


if __name__ == "__main__":
    run(main)
