"""Reads what load clients printed or saved: one JSON object for each result found, or a Parquet table of all."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from servelab.cli import run
from servelab.errors import ServelabError
from servelab.readers import Block, ReadError, scan_file
from servelab.readers.table import write_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="log, saved JSON, JSON lines or CSV")
    parser.add_argument("--table", type=Path, metavar="PARQUET", help="write a row for each figure here, print nothing")
    arguments = parser.parse_args()

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
        raise ServelabError(f"{broken} of the results could not be read; the others were")


def _plain(block: Block) -> dict[str, object]:
    unknown = [line._asdict() for line in block.unknown]
    return {**asdict(block), "figures": block.metrics(), "unknown": unknown}


if __name__ == "__main__":
    run(main)
