"""The archive of a finished study: raw records, tables, report and the workflow that made them, in one zip."""

from __future__ import annotations

from pathlib import Path

from verify_archive import report

from servelab.archive.build import build_redacted
from servelab.archive.contents import read_source, study_contents
from servelab.archive.layout import sign_archive, signature_of
from servelab.archive.redaction import Redactor
from servelab.core.cli import RuleJob, run_rule
from servelab.core.errors import ServelabError
from servelab.core.files import write_json
from servelab.core.identity import file_sha256
from servelab.core.ssh_signature import check_key, parse_key
from servelab.study.project import is_live, name_of

RESULTS = Path("results")


def archive_study(rule: RuleJob) -> None:
    """Writes archive and signature, and their name if the archive verifies; else both are removed."""
    search = rule.wildcards.search
    key = parse_key(rule.params.sign) if rule.params.get("sign") else None
    if key:
        check_key(key)

    root = Path()
    source = read_source(root)
    contents = study_contents(root, RESULTS, search, source)
    if faults := contents.faults:
        more = f" (and {len(faults) - 1} more: {'; '.join(faults[1:4])})" if len(faults) > 1 else ""
        fix = "only a finished study can be archived: `servelab run` it, or restore the file"
        raise ServelabError(f"{faults[0]}{more}; {fix}")
    name = f"{name_of(search) if is_live(search) else search}-{contents.date}.zip"  # recorded ones have a folder
    archive = RESULTS / "archives" / name
    redactor = Redactor.of_this_machine(root.absolute(), hosts=contents.nodes)
    manifest = build_redacted(archive, contents, source, root, redactor)
    said = sign_archive(archive, key)
    redacted = sum(member.redacted for member in manifest.members.values())
    print(f"{archive}: {len(manifest.members)} files, {redacted} redacted; {said}; sha256 {file_sha256(archive)}")
    for left_out, why in manifest.omitted.items():
        print(f"omitted: {left_out}: {why}", flush=True)
    try:
        if not report(archive, None, accepts_unsigned=True):
            raise ServelabError(f"{archive}: does not verify, and is removed")
    except BaseException:
        archive.unlink(missing_ok=True)
        signature_of(archive).unlink(missing_ok=True)
        raise
    write_json(rule.output.name, {"archive": name})


if __name__ == "__main__":
    run_rule(globals())
