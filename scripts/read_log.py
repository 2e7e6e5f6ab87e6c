"""Reads what load clients printed or saved: one JSON object for each result found, or a Parquet table of all."""

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

from servelab.cli import run
from servelab.errors import ServelabError
from servelab.readers import Block, ReadError, scan_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="log, saved JSON, JSON lines or CSV")
    arguments = parser.parse_args()

    broken = 0
    for path in arguments.files:
        for block in scan_file(path):
            if isinstance(block, ReadError):
                broken += 1
                print(f"error: {block}", file=sys.stderr)
            else:
                print(json.dumps(_plain(block), ensure_ascii=False, allow_nan=False))
    if broken:
        raise ServelabError(f"{broken} of the results could not be read; the others are above")


def _plain(block: Block) -> dict[str, object]:
    settings = {name: _finite(value) for name, value in block.settings.items()}
    unknown = [line._asdict() for line in block.unknown]
    return {**asdict(block), "figures": block.metrics(), "settings": settings, "unknown": unknown}


def _finite(value: object) -> object:
    """JSON has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    run(main)
