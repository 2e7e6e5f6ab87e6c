"""Explains why a server failed, from its log: the line that says so, whose fault it is, and what mends it."""

import argparse
from dataclasses import asdict
from pathlib import Path

from servelab.core.credentials import without_credentials
from servelab.core.errors import ConfigError
from servelab.core.processes import lines_at_ends
from servelab.engines.adapters import ENGINES
from servelab.report.json_output import ExplainOutput, print_line


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True, help="the engine that printed it")
    parser.add_argument("--json", action="store_true", help="print a JSON object: kind, reason, message, lines, remedy")
    parser.add_argument("file", type=Path, metavar="FILE", help="the server's log")
    return parser


def main(arguments: argparse.Namespace) -> None:
    engine = ENGINES.get(arguments.engine)
    if not arguments.file.is_file():
        raise ConfigError(f"{arguments.file}: there is no such file; give a server's log")
    why = engine.explain_failure(
        line for text in lines_at_ends(arguments.file) for line in without_credentials(text).splitlines()
    )
    if arguments.json:
        print_line(ExplainOutput.model_validate(asdict(why) | {"reason": why.reason or "crashed"}))
        return
    print(f"{why.kind}: {why.reason or 'crashed'}")
    print(why.message)
    if why.remedy:
        print(f"To mend it: {why.remedy}.")
    for line in why.lines:
        print(f"  {line}")
