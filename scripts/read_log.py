"""Reads results that load clients printed or saved: one JSON object per result, or a Parquet table of all."""

import argparse
import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ServelabError
from servelab.recorded.readers import Block, ReadError, scan_file
from servelab.recorded.readers.blocks_table import write_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="log, saved JSON, JSON lines or CSV")
    parser.add_argument(
        "--table", type=Path, metavar="PARQUET", help="write one row per figure to this file, print nothing"
    )
    arguments = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a lone surrogate from a log stays an escape of JSON

    broken = 0
    if arguments.table:
        errors = write_table(arguments.files, arguments.table)
        for error in errors:
            print(f"error: {error}", file=sys.stderr)
        broken, arguments.files = len(errors), []
    for path in arguments.files:
        for block in scan_file(path):
            if isinstance(block, ReadError):
                broken += 1
                print(f"error: {block}", file=sys.stderr)
            else:
                print(json.dumps(_plain(block), ensure_ascii=False, allow_nan=False))
    if broken:
        raise ServelabError(f"{broken} results could not be read; all others were")


def _plain(block: Block) -> dict[str, object]:
    unknown = [line._asdict() for line in block.unknown]
    return {**asdict(block), "figures": block.metrics(), "unknown": unknown}


if __name__ == "__main__":
    run(main)
