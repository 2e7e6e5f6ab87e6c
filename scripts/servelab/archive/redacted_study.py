"""Archives a study after redaction: tables, charts and report are made from the redacted records.

A picture may show a name that only drawing it again removes.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from servelab.archive.build import build_archive
from servelab.archive.contents import Contents
from servelab.archive.layout import RESULTS, Manifest
from servelab.archive.recompute import recompute
from servelab.archive.redaction import Redactor
from servelab.archive.unpack import open_archive, unpacked
from servelab.archive.workflow_source import Source
from servelab.core.errors import ServelabError


def build_redacted(output: Path, contents: Contents, source: Source, root: Path, redactor: Redactor) -> Manifest:
    """Writes the archive as `build_archive` does; again, if a file that is computed was redacted.

    `ServelabError` if the redacted records cannot be computed from.
    """
    manifest = build_archive(output, contents, source, root, redactor)
    computed = tuple(f"{RESULTS}/{search}/" for search in manifest.searches)
    if not any(member.redacted and name.startswith(computed) for name, member in manifest.members.items()):
        return manifest
    try:
        with (
            tempfile.TemporaryDirectory(prefix="servelab-redacted-") as scratch,
            open_archive(output) as archive,
            unpacked(archive, Path(scratch)) as folder,
        ):
            work = Path(scratch) / "again"
            work.mkdir()
            if why := recompute(folder, manifest, root, work, pages=True):
                raise ServelabError(f"{output}: cannot be computed from the redacted records: {why}")
            made = {name: work / name for name in contents.files if name.startswith(computed)}
            files = contents.files | {name: path for name, path in made.items() if path.is_file()}
            return build_archive(output, replace(contents, files=files), source, root, redactor)
    except BaseException:
        output.unlink(missing_ok=True)
        raise
