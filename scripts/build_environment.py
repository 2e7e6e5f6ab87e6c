"""Builds the environment of one engine or load client from its lock, in the folder of `--output`."""

from __future__ import annotations

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.core.identity import lock_sha256
from servelab.engines.adapters import ENGINES
from servelab.engines.runtimes import RUNTIMES, Tool
from servelab.measure.clients import CLIENTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True, help="name of the engine or the load client")
    parser.add_argument("--lock", type=Path, required=True, help="requirements with hashes, or the YAML description")
    parser.add_argument("--runtime", default="venv", help="name of the runtime")
    parser.add_argument("--output", type=Path, required=True, help="…/<tool>-<lock's hash>/environment.json")
    arguments = parser.parse_args()
    tool: Tool = CLIENTS.get(arguments.tool) if arguments.tool in CLIENTS.names() else ENGINES.get(arguments.tool)
    expected = f"{tool.name}-{lock_sha256(arguments.lock)[:12]}"
    if arguments.output.absolute().parent.name != expected:
        raise ConfigError(f"{arguments.output}: the folder of this lock's environment must be named {expected}")
    RUNTIMES.get(arguments.runtime).build(tool, arguments.lock, arguments.output.parent)


if __name__ == "__main__":
    run(main)
