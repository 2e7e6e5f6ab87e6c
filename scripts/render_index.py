"""Writes the index page over all studies in a folder of results, live and recorded, finished or not."""

import argparse
from pathlib import Path

from servelab.core.cli import run
from servelab.report.index_page import index_page
from servelab.report.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument(
        "--expected", nargs="*", default=[], help="studies to list even without results: studies/<study>"
    )
    parser.add_argument("--output-html", type=Path, help="default: index.html in the results")
    parser.add_argument("--output-md", type=Path, help="default: index.md in the results")
    arguments = parser.parse_args()

    page = index_page(arguments.results, arguments.expected)
    html = arguments.output_html or arguments.results / "index.html"
    write_page(page, html, arguments.output_md or html.with_suffix(".md"))


if __name__ == "__main__":
    run(main)
