"""Writes an archive: the same content gives the same bytes. Files are streamed twice: to be hashed, and to be kept."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from servelab.archive.container import BLOCK_BYTES, entry, seal
from servelab.archive.contents import Contents
from servelab.archive.crate import crate_metadata
from servelab.archive.layout import CRATE, DIFF, MANIFEST, README, RECIPE, Manifest, Member, media_type
from servelab.archive.recipe import recipe
from servelab.archive.redaction import Redactor
from servelab.archive.source import Source
from servelab.errors import Outage, ServelabError
from servelab.files import replacing

TEXT = """\
# {title}

An archive of the study `{study}`, made by Servelab: raw records, tables, report, and the workflow that made them
(`workflow/`{commit}). `manifest.json` has the sha256 of every file; `ro-crate-metadata.json` says what they are
(RO-Crate 1.1, Workflow Run Crate). `workflow/docs/archive.md` tells how to check it, put it back and compare it:

    python workflow/scripts/verify_archive.py THIS_FILE
"""


def build_archive(output: Path, contents: Contents, source: Source, root: Path, redactor: Redactor) -> Manifest:
    """Writes the archive whole or not at all, and returns its manifest.

    A file that is missing, changes while it is read, or must stay as it is and holds a secret, is a `ServelabError`
    that names it.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".archive-", dir=output.parent))
    try:
        files = _Files(contents, redactor, scratch)
        commit = f", commit {source.commit}" if source.commit else ""
        files.make(README, TEXT.format(title=contents.title, study=contents.study, commit=commit).encode())
        if source.diff:
            files.make(DIFF, source.diff)
        for name, text in recipe(root, contents).items():
            files.make(f"{RECIPE}/{name}", text.encode())
        manifest = Manifest(
            study=contents.study,
            title=redactor.text(contents.title),
            date=contents.date,
            searches=contents.searches,
            commit=source.commit,
            dirty=source.dirty,
            omitted=dict(sorted(contents.omitted.items())),
            members={name: files.member(name) for name in sorted(files.origins)},
        )
        crate = redactor.json(crate_metadata(manifest, contents))
        files.make(CRATE, _json(crate))
        members = dict(sorted({**manifest.members, CRATE: files.member(CRATE)}.items()))
        manifest = manifest.model_copy(update={"members": members})
        files.make(MANIFEST, _json(manifest.model_dump(mode="json")))
        with replacing(output) as temporary:
            _write(temporary, files, members | {MANIFEST: files.member(MANIFEST)})
    except OSError as error:
        raise Outage(f"{output}: cannot be written: {error.strerror or error}; mend that and run again") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return manifest


class _Files:
    """Files by their names in the archive, as they go into it: without what must not be archived."""

    def __init__(self, contents: Contents, redactor: Redactor, scratch: Path) -> None:
        self.origins: dict[str, Path] = dict(contents.files)
        self._redactor, self._scratch = redactor, scratch
        self._redacted: dict[str, Path] = {}

    def make(self, name: str, content: bytes) -> None:
        """Adds a file that is made here."""
        self.origins[name] = self._scratch / f"made-{len(self.origins)}{Path(name).suffix}"
        self.origins[name].write_bytes(content)

    def member(self, name: str) -> Member:
        """What the manifest says of a file; what is to be taken out of it is, and the rest kept for `blocks`."""
        origin = self.origins[name]
        if not origin.is_file():
            raise ServelabError(f"{origin}: missing, and it belongs into the archive")
        if name not in (CRATE, MANIFEST):  # these are made of what is in the archive
            scratch = self._scratch / f"redacted-{len(self._redacted)}{origin.suffix}"
            try:
                changed = self._redactor.member(name, origin, scratch)
            except pa.ArrowException as error:
                raise ServelabError(f"{origin}: not a readable Parquet file: {error}") from None
            if changed != origin:
                self._redacted[name] = changed
        digest, size = hashlib.sha256(), 0
        for block in self.blocks(name):
            digest.update(block)
            size += len(block)
        redacted = name in self._redacted
        return Member(sha256=digest.hexdigest(), size_bytes=size, media_type=media_type(name), redacted=redacted)

    def blocks(self, name: str) -> Iterator[bytes]:
        """Content of a file as it goes into the archive."""
        with self._redacted.get(name, self.origins[name]).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block


def _write(path: Path, files: _Files, members: dict[str, Member]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in sorted(members.items()):
            digest = hashlib.sha256()
            with archive.open(entry(name, member.size_bytes), "w") as output:
                for block in files.blocks(name):
                    digest.update(block)
                    output.write(block)
            if digest.hexdigest() != member.sha256:
                raise ServelabError(f"{files.origins[name]}: changed while it was archived; build the archive again")
    seal(path)


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
