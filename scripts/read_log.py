"""Reads results that load clients printed or saved, from files and folders.

Prints one JSON object per result: figures, the formula and the releases behind each, settings, and the headings and
command above it.
"""

import argparse
import io
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from servelab.core.credentials import REDACTED, is_secret, without_credentials
from servelab.core.errors import ServelabError
from servelab.recorded.anything import TextAbove, read_anything
from servelab.recorded.readers import Block


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="PATH", help="log, page, saved JSON or CSV; or a folder")
    parser.add_argument("--json", action="store_true", help="as other commands have it; it always prints JSON")
    return parser


def main(arguments: argparse.Namespace) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a lone surrogate from a log stays an escape of JSON

    broken = 0
    for path in arguments.files:
        for found in read_anything(path):
            for error in found.errors:
                print(f"error: {error}", file=sys.stderr)
            for note in found.notes:
                shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in note)
                print(f"note: {shown}", file=sys.stderr)
            broken += len(found.errors)
            for block, place in found.blocks:
                print(json.dumps(_plain(block, place), ensure_ascii=False, allow_nan=False))
    if broken:
        raise ServelabError(f"{broken} results could not be read; all others were")


def _plain(block: Block, place: TextAbove) -> Any:
    formulas = {metric: formula._asdict() for metric, formula in block.formulas.items()}
    unknown = [{"line": line, "text": text} for line, text in block.unknown]
    made = {"figures": block.metrics(), "unknown": unknown, "formulas": formulas, "place": place._asdict()}
    return _without_secrets(asdict(block) | made)


def _without_secrets(value: Any, name: str = "") -> Any:
    """Plain data without the credentials that a client saved of its command or headers, or a page shows."""
    if isinstance(value, dict):
        return {key: _without_secrets(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(each, name) for each in value]
    if not isinstance(value, str):
        return value
    return REDACTED if is_secret(name, value) else without_credentials(value)
