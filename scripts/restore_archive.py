"""Restores an archived study into a results folder: runs that are there are kept, conflicting ones refused."""

import argparse
from pathlib import Path

from servelab.archive.restore import restore_archive
from servelab.cli import run
from servelab.index_page import index_page
from servelab.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, metavar="FILE")
    parser.add_argument("--results", type=Path, default=Path("results"))
    arguments = parser.parse_args()

    results = arguments.results
    restored = restore_archive(arguments.archive, results)
    write_page(index_page(results, []), results / "index.html", results / "index.md")  # it shows what is there
    manifest = restored.manifest
    folder = results / manifest.searches[0]
    print(f"{folder}: {restored.written} files restored, {restored.there} were there already")
    for search in manifest.searches:
        file = f"config/{search}.yaml" if search.startswith("studies/") else f"config/{search}/study.yaml"
        if not Path(file).exists():
            print(f"{file} is not here; it is in the archive, as workflow/{file}")


if __name__ == "__main__":
    run(main)
