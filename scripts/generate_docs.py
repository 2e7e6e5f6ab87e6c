"""Writes the documents that are generated from the types; with --check only reports one that is out of date."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ServelabError
from servelab.core.files import write_text
from servelab.report.reference_docs import documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="folder that contains docs/ and config/")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a document is out of date")
    arguments = parser.parse_args()

    for path, text in documents().items():
        file = arguments.root / path
        if arguments.check and (not file.exists() or file.read_text(encoding="utf-8") != text):
            raise ServelabError(f"{path} is out of date; run `make docs`")
        if not arguments.check:
            write_text(file, text)


if __name__ == "__main__":
    run(main)
