"""Reads the logs of a recorded stage into the tables that a live stage has."""

import argparse
from pathlib import Path

from servelab.cli import run
from servelab.parse import TABLES, write_table
from servelab.recorded.parse import parse_recorded
from servelab.recorded.plan import RecordedPlan
from servelab.recorded.study import load_recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", type=Path, required=True, help="folder config/recorded/<study>")
    parser.add_argument("--plan", type=Path, required=True)
    for name in TABLES:
        parser.add_argument(f"--output-{name}", type=Path, required=True)
    arguments = parser.parse_args()

    plan = RecordedPlan.model_validate_json(arguments.plan.read_text(encoding="utf-8"))
    for name, table in parse_recorded(load_recorded(arguments.study), plan, arguments.study).items():
        write_table(table, getattr(arguments, f"output_{name}"))


if __name__ == "__main__":
    run(main)
