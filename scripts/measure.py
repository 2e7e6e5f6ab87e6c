"""Measures one run into `results/runs/<run_id>`: exit 0 for a result, failed candidates included; 75 for an outage."""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import ValidationError

from servelab import cli
from servelab.config_file import describe_validation_error
from servelab.errors import ConfigError
from servelab.guard import guarded
from servelab.measure import measure
from servelab.runtimes import read_environment
from servelab.session import RunInputs
from servelab.spec import RunSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="the run's specification, as JSON")
    parser.add_argument("--environment", type=Path, required=True, help="environment.json of the engine")
    parser.add_argument(
        "--client-environment", type=Path, nargs="?", help="environment.json of the load client; empty for our own"
    )
    parser.add_argument("--model", type=Path, required=True, help="model.json in a format the engine serves")
    parser.add_argument("--requests", type=Path, required=True, help="the workload's requests.parquet")
    parser.add_argument("--output", type=Path, required=True, help="…/runs/<run_id>")
    arguments = parser.parse_args()
    try:
        spec = RunSpec.model_validate_json(arguments.spec)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, "--spec", RunSpec)) from None
    with guarded():
        inputs = RunInputs(
            spec=spec,
            environment=read_environment(arguments.environment),
            client_environment=arguments.client_environment and read_environment(arguments.client_environment),
            model_json=arguments.model,
            requests=arguments.requests,
        )
        status = measure(inputs, arguments.output)
    if status["outcome"] == "ok":
        print(f"{status['run_id']}: {status['rounds']} rounds, {status['requests']} requests")
    else:
        print(f"{status['run_id']}: failed, {status['reason']}: {status['message']}")


cli.run(main)
