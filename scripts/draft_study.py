"""Drafts a recorded study from a published page (Markdown or saved HTML) or a folder of logs, for your review.

What was guessed is marked `# guessed` in the study; what could not be placed is listed in `unplaced.md` beside it.
"""

import argparse
from collections import Counter
from pathlib import Path

from servelab.core.cli import run
from servelab.core.errors import ConfigError
from servelab.recorded.draft.drafted import draft
from servelab.recorded.draft.workloads import slug
from servelab.recorded.draft.writing import write_draft


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, metavar="PATH", help="page (.md, .html) or folder of logs")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FOLDER",
        help="new folder of the study; its name is the study's (default: config/recorded/<name of the page>)",
    )
    return parser


def main(arguments: argparse.Namespace) -> None:
    folder = arguments.into or Path("config/recorded") / (slug(arguments.source.resolve().stem) or "study")
    if folder.name != slug(folder.name):
        raise ConfigError(f"--into {folder}: a study's name has small letters, digits, dots and dashes")
    found = draft(arguments.source, folder.name)
    write_draft(found, folder)

    logs = sum(len(results) for each in found.candidates.all for results in each.results.values())
    kinds = Counter(claim.kind for claim in found.claims)
    claims = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common()) or "none"
    print(f"{folder}: {len(found.candidates.stages)} stages, {len(found.candidates.all)} candidates, {logs} logs")
    print(f"claims: {len(found.claims)} ({claims})")
    print(f"not placed: {len(found.unplaced)}, listed in {folder / 'unplaced.md'}")
    print("Look at the lines marked `# guessed` in study.yaml, then run it as docs/recorded.md says.")


if __name__ == "__main__":
    run(lambda: main(options().parse_args()))
