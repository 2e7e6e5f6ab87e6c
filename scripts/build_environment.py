"""Builds the environment of one engine from its lock, in the folder of `--output`."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab import cli
from servelab.engines import ENGINES
from servelab.errors import ConfigError
from servelab.identity import file_sha256
from servelab.runtimes import RUNTIMES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--lock", type=Path, required=True, help="requirements with hashes")
    parser.add_argument("--runtime", default="venv")
    parser.add_argument("--output", type=Path, required=True, help="…/<engine>-<lock's hash>/environment.json")
    arguments = parser.parse_args()
    expected = f"{arguments.engine}-{file_sha256(arguments.lock)[:12]}"
    if arguments.output.absolute().parent.name != expected:
        raise ConfigError(f"{arguments.output}: this lock's environment belongs into a folder named {expected}")
    RUNTIMES.get(arguments.runtime).build(ENGINES.get(arguments.engine), arguments.lock, arguments.output.parent)


cli.run(main)
