"""Verifies archives of studies: hashes, every table made again from the raw records, every figure traced to a run.

Says in a line what holds, in one line each what does not, and ends with 1 if anything does not. Needs no network.
"""

import argparse
import sys
from pathlib import Path

from servelab.archive.verify import code_of, verify_archive
from servelab.cli import run
from servelab.identity import file_sha256

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--own-workflow",
        action="store_true",
        help="make the tables again with the workflow in the archive, not with this one: runs code of the archive",
    )
    arguments = parser.parse_args()

    broken = False
    for archive in arguments.archives:
        verdict = verify_archive(archive, None if arguments.own_workflow else ROOT)
        for fault in verdict.faults:
            print(f"{archive}: does not hold: {fault}")
        if verdict.holds:
            print(f"{archive}: holds: {'; '.join(verdict.holds)}; sha256 {file_sha256(archive)}")
        if verdict.faults and not arguments.own_workflow and (note := code_of(verdict.manifest, ROOT)):
            print(f"{archive}: {note}; --own-workflow uses that one")
        broken |= bool(verdict.faults)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    run(main)
