"""Archives a finished study: raw records, tables, report and the workflow that made them, in one zip."""

import argparse
from pathlib import Path

from servelab.archive.contents import archive_name, date_of, study_contents
from servelab.archive.redacted_study import build_redacted
from servelab.archive.redaction import Redactor
from servelab.archive.signatures import sign_archive
from servelab.archive.workflow_source import read_source
from servelab.core.cli import run
from servelab.core.identity import file_sha256
from servelab.core.ssh_signature import check_key, parse_key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", required=True, help="studies/<study> or recorded/<study>")
    parser.add_argument("--beside", nargs="*", default=[], help="the other study of this name that its report shows")
    parser.add_argument("--root", type=Path, default=Path(), help="folder of the project")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--output", type=Path, help="default: results/archives/<study>-<date>.zip")
    parser.add_argument("--sign", help="key that signs the archive and its identity, as JSON; see docs/archive.md")
    arguments = parser.parse_args()
    key = parse_key(arguments.sign) if arguments.sign else None
    if key:
        check_key(key)

    root, results = arguments.root, arguments.results
    source = read_source(root)
    contents = study_contents(root, results, [arguments.search, *arguments.beside], source)
    name = archive_name(arguments.search, date_of(root, results, arguments.search, source))
    output = arguments.output or results / "archives" / name
    redactor = Redactor.of_this_machine(root.absolute(), hosts={each.node for each in contents.runs if each.node})
    manifest = build_redacted(output, contents, source, root, redactor)
    said = sign_archive(output, key)
    redacted = sum(member.redacted for member in manifest.members.values())
    print(f"{output}: {len(manifest.members)} files, {redacted} of them redacted; {said}; sha256 {file_sha256(output)}")
    for left_out, why in manifest.omitted.items():
        print(f"omitted: {left_out}: {why}")


if __name__ == "__main__":
    run(main)
