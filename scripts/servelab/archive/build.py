"""Writes an archive: the same content gives the same bytes. Files are streamed twice, to hash and to store them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from servelab.archive.contents import Contents
from servelab.archive.crate import crate_metadata
from servelab.archive.layout import CRATE, DIFF, MANIFEST, README, RECIPE, RESULTS, Manifest, Member, media_type
from servelab.archive.recipe import recipe
from servelab.archive.redaction import Redactor
from servelab.archive.secret_scan import refuse_secrets
from servelab.archive.workflow_source import Source
from servelab.archive.zip_format import BLOCK_BYTES, entry, seal
from servelab.core.errors import Outage, ServelabError
from servelab.core.files import replacing, write_json
from servelab.core.seal import resealed

TEXT = """\
# {title}

An archive of the study `{study}`, made by Servelab: raw records, tables, report, and the workflow that made them
(`workflow/`{commit}). `manifest.json` has the sha256 of every file; `ro-crate-metadata.json` describes them
(RO-Crate 1.1, Workflow Run Crate). `workflow/docs/archive.md` explains how to verify, restore and compare it:

    python workflow/scripts/verify_archive.py --accept-unsigned THIS_FILE

Without a signature the raw records agree with each other and with the tables, but nothing proves that they were
measured; `--accept-unsigned` says that this is enough. A signature is a file beside this one whose name ends in `.sig`.
"""


def build_archive(output: Path, contents: Contents, source: Source, root: Path, redactor: Redactor) -> Manifest:
    """Writes the archive whole or not at all, and returns its manifest.

    `ServelabError` names a file that is missing, changes while it is read, or must stay unchanged and has a secret.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".archive-", dir=output.parent))
    try:
        files = _Files(contents, redactor, scratch)
        files.make(README, readme(contents, source.commit).encode())
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
            members=files.members(),
        )
        crate = redactor.json(crate_metadata(manifest, contents))
        files.make(CRATE, json_bytes(crate))
        members = dict(sorted({**manifest.members, CRATE: files.member(CRATE)}.items()))
        manifest = manifest.model_copy(update={"members": members})
        files.make(MANIFEST, json_bytes(manifest.model_dump(mode="json")))
        with replacing(output) as temporary:
            _write(temporary, files, members | {MANIFEST: files.member(MANIFEST)})
    except OSError as error:
        raise Outage(f"{output}: cannot be written: {error.strerror or error}; fix that and run again") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def readme(contents: Contents, commit: str | None) -> str:
    """`README.md` of an archive."""
    named = f", commit {commit}" if commit else ""
    return TEXT.format(title=contents.title, study=contents.study, commit=named)


class _Files:
    """Files by their names in the archive, with redacted contents."""

    def __init__(self, contents: Contents, redactor: Redactor, scratch: Path) -> None:
        self.origins: dict[str, Path] = dict(contents.files)
        self._redactor, self._scratch = redactor, scratch
        self._redacted: dict[str, Path] = {}

    def make(self, name: str, content: bytes) -> None:
        """Adds a file with this content."""
        self.origins[name] = self._scratch / f"made-{len(self.origins)}{Path(name).suffix}"
        self.origins[name].write_bytes(content)

    def members(self) -> dict[str, Member]:
        """The manifest's entries of all files so far, sorted; seals of runs are those of the redacted files."""
        found = {name: self.member(name) for name in self.origins if not _is_status(name)}
        for name in filter(_is_status, self.origins):
            found[name] = self.member(name)
            if self._reseal(name, found):
                found[name] = self._entry(name)
        return dict(sorted(found.items()))

    def member(self, name: str) -> Member:
        """The manifest's entry of a file; the file is redacted and kept for `blocks`."""
        origin = self.origins[name]
        if not origin.is_file():
            raise ServelabError(f"{origin}: missing, but belongs into the archive")
        if name not in (CRATE, MANIFEST):  # these are made from redacted contents
            scratch = self._scratch / f"redacted-{len(self._redacted)}{origin.suffix}"
            try:
                changed = self._redactor.member(name, origin, scratch)
            except pa.ArrowException as error:
                raise ServelabError(f"{origin}: not a readable Parquet file: {error}") from None
            if changed != origin:
                self._redacted[name] = changed
            refuse_secrets(name, changed)
        return self._entry(name)

    def _reseal(self, name: str, members: dict[str, Member]) -> bool:
        """Puts the digests of redacted files into a run's status; returns whether there were any."""
        folder = name.removesuffix("status.json")
        names = [other for other in members if other.startswith(folder) and other in self._redacted]
        status = json.loads(b"".join(self.blocks(name))) if names else {}
        if not status.get("seal"):
            return False
        sealed = {other: members[other] for other in names if other.removeprefix(folder) in status["seal"]["files"]}
        redacted = {other.removeprefix(folder): (each.sha256, each.size_bytes) for other, each in sealed.items()}
        self._redacted[name] = self._scratch / f"resealed-{len(self._redacted)}.json"
        write_json(self._redacted[name], resealed(status, redacted))
        return True

    def _entry(self, name: str) -> Member:
        digest, size = hashlib.sha256(), 0
        for block in self.blocks(name):
            digest.update(block)
            size += len(block)
        redacted = name in self._redacted
        return Member(sha256=digest.hexdigest(), size_bytes=size, media_type=media_type(name), redacted=redacted)

    def blocks(self, name: str) -> Iterator[bytes]:
        """Redacted content of a file."""
        with self._redacted.get(name, self.origins[name]).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block


def _is_status(name: str) -> bool:
    return name.startswith(f"{RESULTS}/runs/") and name.endswith("/status.json")


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


def json_bytes(value: object) -> bytes:
    """A JSON file that describes an archive, as a build writes it."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
