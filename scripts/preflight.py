"""Checks studies before any accelerator is reserved and prints the findings; exits 1 if there is an error."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ServelabError
from servelab.core.files import write_json
from servelab.search.preflight import preflight
from servelab.search.preflight.printed_table import render
from servelab.search.project import load_project


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=Path, nargs="+", required=True, help="config/studies/<study>.yaml")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains config/ and envs/")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder to read from and write to")
    arguments = parser.parse_args()

    wrong = []
    for file in arguments.studies:
        project = load_project(file, arguments.root)
        rows = preflight(project, arguments.results)
        study = project.study.study
        write_json(arguments.results / "studies" / study / "preflight.json", [row.model_dump() for row in rows])
        print(f"{render(study, rows)}\n", flush=True)
        wrong += [row for row in rows if row.verdict == "error"]
    if wrong:
        raise ServelabError(f"preflight: {len(wrong)} error{'s'[: len(wrong) - 1]}, see the tables above")


if __name__ == "__main__":
    run(main)
