"""Compares two archives: identity, versions, hardware, and figures with their significance."""

import argparse
from pathlib import Path

from servelab.archive.compare import compare_archives
from servelab.core.cli import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a", type=Path, metavar="A")
    parser.add_argument("b", type=Path, metavar="B")
    arguments = parser.parse_args()
    for line in compare_archives(arguments.a, arguments.b):
        print(line)


if __name__ == "__main__":
    run(main)
