"""Prints what `servelab check` and `servelab plan` find, as JSON lines: an object for each study. Measures nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from servelab.cli.checkout import CONFIG, STUDIES
from servelab.core.files import own_or_shipped
from servelab.core.yaml_file import read_yaml
from servelab.report.json_output import CheckOutput, print_line
from servelab.search.forecast import forecast
from servelab.search.preflight import preflight
from servelab.search.project import load_project

RESULTS = Path("results")


def main(command: str, names: Sequence[str]) -> None:
    """`command` is `check` or `plan`; without names, the studies of config/config.yaml. Exits 1 if a check fails."""
    errors = 0
    for name in names or read_yaml(own_or_shipped(Path(), CONFIG))["studies"]:
        project = load_project(STUDIES / f"{name}.yaml", Path())
        if command == "plan":
            print_line(forecast(project, RESULTS))
            continue
        rows = preflight(project, RESULTS)
        wrong = sum(row.verdict == "error" for row in rows)
        print_line(CheckOutput(study=name, errors=wrong, findings=rows))
        errors += wrong
    if errors:
        sys.exit(1)
