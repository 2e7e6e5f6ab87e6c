"""Builds the environment of one engine or load client from its lock, in the folder of `--output`."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab import cli
from servelab.clients import CLIENTS
from servelab.engines import ENGINES
from servelab.errors import ConfigError
from servelab.identity import file_sha256
from servelab.runtimes import RUNTIMES, Tool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True, help="name of the engine or the load client")
    parser.add_argument("--lock", type=Path, required=True, help="requirements with hashes")
    parser.add_argument("--runtime", default="venv")
    parser.add_argument("--output", type=Path, required=True, help="…/<tool>-<lock's hash>/environment.json")
    arguments = parser.parse_args()
    tool: Tool = CLIENTS.get(arguments.tool) if arguments.tool in CLIENTS.names() else ENGINES.get(arguments.tool)
    expected = f"{tool.name}-{file_sha256(arguments.lock)[:12]}"
    if arguments.output.absolute().parent.name != expected:
        raise ConfigError(f"{arguments.output}: this lock's environment belongs into a folder named {expected}")
    RUNTIMES.get(arguments.runtime).build(tool, arguments.lock, arguments.output.parent)


cli.run(main)
