"""Measures a pair into `results/pairs/<pair_id>`: exit 0 for a result, a failed side included; 75 for an outage."""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import ValidationError

from servelab import cli
from servelab.config_file import describe_validation_error
from servelab.deciding_pair import SIDES, PairSpec
from servelab.errors import ConfigError
from servelab.guard import guarded
from servelab.pair import measure_pair
from servelab.runtimes import read_environment
from servelab.session import RunInputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", required=True, help="the two specifications and the cycles, as JSON")
    parser.add_argument("--environment", type=Path, nargs=2, required=True, help="environment.json of each engine")
    parser.add_argument(
        "--client-environment", type=Path, nargs="?", help="environment.json of the load client; empty for our own"
    )
    parser.add_argument("--model", type=Path, nargs=2, required=True, help="model.json of each side")
    parser.add_argument("--requests", type=Path, required=True, help="the workload's requests.parquet")
    parser.add_argument("--output", type=Path, required=True, help="…/pairs/<pair_id>")
    arguments = parser.parse_args()
    try:
        pair = PairSpec.model_validate_json(arguments.pair)
    except ValidationError as error:
        raise ConfigError(describe_validation_error(error, "--pair", PairSpec)) from None
    inputs = {
        side: RunInputs(
            spec=spec,
            environment=read_environment(environment),
            client_environment=arguments.client_environment and read_environment(arguments.client_environment),
            model_json=model,
            requests=arguments.requests,
        )
        for side, spec, environment, model in zip(
            SIDES, (pair.a, pair.b), arguments.environment, arguments.model, strict=True
        )
    }
    with guarded():
        status = measure_pair(pair, inputs, arguments.output)
    if status["outcome"] == "ok":
        print(f"{status['pair_id']}: {status['order']}")
    else:
        print(f"{status['pair_id']}: side {status['failed_side']} failed: {status['message']}")


cli.run(main)
