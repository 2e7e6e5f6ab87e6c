"""The archive of a finished study: raw records, tables, report and the workflow that made them, in one zip."""

from __future__ import annotations

from pathlib import Path

from servelab.archive.build import build_redacted
from servelab.archive.contents import archive_name, date_of, read_source, study_contents
from servelab.archive.layout import sign_archive
from servelab.archive.redaction import Redactor
from servelab.core.cli import RuleJob, run_rule
from servelab.core.files import write_json
from servelab.core.identity import file_sha256
from servelab.core.ssh_signature import check_key, parse_key

RESULTS = Path("results")


def name_archive(rule: RuleJob) -> None:
    """Writes the archive's name, which has the day on which the study's last run ended."""
    search = rule.wildcards.search
    date = date_of(Path(), RESULTS, search, read_source(Path()))
    write_json(rule.output.name, {"archive": archive_name(search, date)})


def archive_study(rule: RuleJob) -> None:
    search = rule.params.search
    key = parse_key(rule.params.sign) if rule.params.get("sign") else None
    if key:
        check_key(key)

    root = Path()
    source = read_source(root)
    contents = study_contents(root, RESULTS, [search], source)
    name = archive_name(search, date_of(root, RESULTS, search, source))
    output = rule.output.get("archive", RESULTS / "archives" / name)
    redactor = Redactor.of_this_machine(root.absolute(), hosts=contents.nodes)
    manifest = build_redacted(output, contents, source, root, redactor)
    said = sign_archive(output, key)
    redacted = sum(member.redacted for member in manifest.members.values())
    print(f"{output}: {len(manifest.members)} files, {redacted} of them redacted; {said}; sha256 {file_sha256(output)}")
    for left_out, why in manifest.omitted.items():
        print(f"omitted: {left_out}: {why}")


if __name__ == "__main__":
    run_rule(globals())
