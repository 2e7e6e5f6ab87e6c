"""Checks studies before they use an accelerator: model, engines, options, memory.

Prints a table for each, with the rows of results/studies/<study>/preflight.json; exits with 1 if there is an error.
"""

import argparse
import sys
from pathlib import Path

from servelab.cli.checkout import named_studies
from servelab.core.errors import ServelabError
from servelab.core.files import write_json
from servelab.report.json_output import CheckOutput, print_line
from servelab.search.preflight import preflight, render

RESULTS = Path("results")


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", help="files of config/studies; default: those of config/config.yaml")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each study")
    return parser


def main(arguments: argparse.Namespace) -> None:
    errors = 0
    for project in named_studies(arguments.studies):
        name, rows = project.study.study, preflight(project, RESULTS)
        wrong = sum(row.verdict == "error" for row in rows)
        errors += wrong
        if arguments.json:
            print_line(CheckOutput(study=name, errors=wrong, findings=rows))
            continue
        write_json(RESULTS / "studies" / name / "preflight.json", [row.model_dump() for row in rows])
        print(f"{render(name, rows)}\n", flush=True)
    if errors and not arguments.json:
        raise ServelabError(f"preflight: {errors} error{'s'[: errors - 1]}, see the tables above")
    if errors:
        sys.exit(1)
