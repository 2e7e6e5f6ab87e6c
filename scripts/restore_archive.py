"""Verifies an archived study and restores it into a results folder, its runs marked as imported.

Existing runs are kept, and conflicting ones refused. Nothing is written if the archive does not verify.
"""

import argparse
from pathlib import Path

from servelab.archive.layout import add_signature_options
from servelab.archive.restore import restore_archive
from servelab.report.index_page import index_page
from servelab.report.page import write_page

ROOT = Path(__file__).resolve().parents[1]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, metavar="FILE")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where to (default: results)")
    add_signature_options(parser)
    return parser


def main(arguments: argparse.Namespace) -> None:
    results = arguments.results
    accepts, signers = arguments.accept_unsigned, arguments.allowed_signers
    restored = restore_archive(arguments.archive, results, ROOT, signers, accepts_unsigned=accepts)
    write_page(index_page(results, []), results / "index.html", results / "index.md")
    manifest = restored.manifest
    folder = results / manifest.search
    print(f"{folder}: {restored.written} files restored, {restored.there} already existed; {restored.signature.text}")
    if restored.imported:
        print(f"{results}/runs: {len(restored.imported)} runs were imported, and are marked so (imported.json)")
    if not Path(file := manifest.study_file.removeprefix("workflow/")).exists():
        print(f"{file} is not here; it is in the archive, as {manifest.study_file}")
