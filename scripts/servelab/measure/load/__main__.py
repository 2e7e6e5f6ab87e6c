"""Command line of Servelab's load client: `python -m servelab.measure.load --load load.json --output folder`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq
from pydantic import ValidationError

from servelab.core import cli
from servelab.core.errors import ConfigError
from servelab.measure.load import LoadPlan
from servelab.measure.load.sender import send_load


def main() -> None:
    """Reads the plan, sends its requests and writes the records and the client's statistics."""
    parser = argparse.ArgumentParser(description="Sends one round of load to a server and records every request.")
    parser.add_argument("--load", type=Path, required=True, help="the LoadPlan, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="folder for requests.parquet and stats.json")
    arguments = parser.parse_args()
    try:
        plan = LoadPlan.model_validate_json(arguments.load.read_bytes())
    except OSError as error:
        raise ConfigError(f"{arguments.load}: {error.strerror}") from error
    except ValidationError as error:
        from servelab.core.yaml_file import describe_validation_error

        raise ConfigError(describe_validation_error(error, str(arguments.load), LoadPlan)) from error
    records, stats, answers = send_load(plan)
    pq.write_table(records, arguments.output / "requests.parquet")
    if answers is not None:
        pq.write_table(answers, arguments.output / "answers.parquet")
    (arguments.output / "stats.json").write_text(stats.model_dump_json(indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    cli.run(main, without_pandas=True)
