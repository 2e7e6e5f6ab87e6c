"""Writes an archive: the same content gives the same bytes. Each file is redacted, hashed and stored in one pass."""

from __future__ import annotations

import hashlib
import json
import stat
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from servelab.archive.about import crate_metadata, readme
from servelab.archive.contents import Contents, WorkflowSource
from servelab.archive.layout import CRATE, DIFF, MANIFEST, README, RESULTS, Manifest, Member, opened
from servelab.archive.redaction import Redactor, refuse_secrets
from servelab.archive.verify import recompute
from servelab.core.errors import Outage, ServelabError
from servelab.core.files import replacing, write_json
from servelab.core.seal import resealed

BLOCK_BYTES = 1 << 20


def build_redacted(
    output: Path, contents: Contents, source: WorkflowSource, root: Path, redactor: Redactor
) -> Manifest:
    """Writes the archive as `build_archive` does. If a table was redacted, all are made again from redacted records.

    `ServelabError` if the redacted records cannot be computed from.
    """
    manifest = build_archive(output, contents, source, redactor)
    if not any(each.redacted and name.startswith(manifest.folder) for name, each in manifest.members.items()):
        return manifest
    try:
        with (
            tempfile.TemporaryDirectory(prefix="servelab-redacted-") as scratch,
            opened(output, Path(scratch)) as (_, folder, _),
        ):
            work = Path(scratch) / "again"
            if why := recompute(folder, manifest, root, work):
                raise ServelabError(f"{output}: cannot be computed from the redacted records: {why}")
            made = {name: work / name for name in contents.files if name.startswith(manifest.folder)}
            files = contents.files | {name: path for name, path in made.items() if path.is_file()}
            return build_archive(output, replace(contents, files=files), source, redactor)
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def build_archive(output: Path, contents: Contents, source: WorkflowSource, redactor: Redactor) -> Manifest:
    """Writes the archive whole or not at all, and returns its manifest.

    `ServelabError` names a file that is missing, or must stay unchanged and has a secret.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".archive-", dir=output.parent) as scratch,
            replacing(output) as temporary,
            zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as zipped,
        ):
            answer = f"{RESULTS}/{contents.search}/recommended.json"
            files = _Files(redactor, Path(scratch), zipped, answer)
            for name in sorted(contents.files, key=lambda name: (_is_status(name), name)):  # a status seals its run
                files.add(name, contents.files[name])
            if source.diff:
                files.make(DIFF, source.diff)
            manifest = Manifest(
                study=contents.search.split("/")[1],
                title=redactor.text(contents.title),
                date=contents.date,
                searches=[contents.search],
                commit=source.commit,
                dirty=source.dirty,
                omitted=dict(sorted(contents.omitted.items())),
                members=files.members,
            )
            files.make(README, readme(manifest, files.kept).encode())
            files.make(CRATE, _json_bytes(redactor.json(crate_metadata(manifest))))
            manifest = manifest.model_copy(update={"members": dict(sorted(files.members.items()))})
            files.make(MANIFEST, _json_bytes(manifest.model_dump(mode="json")))
    except OSError as error:
        raise Outage(f"{output}: cannot be written: {error.strerror or error}; fix that and run again") from None
    return manifest


class _Files:
    """Files that go into a zip by their names, redacted where that is needed."""

    def __init__(self, redactor: Redactor, scratch: Path, zipped: zipfile.ZipFile, kept: str) -> None:
        self.members: dict[str, Member] = {}
        self.kept = scratch / "none"
        """The redacted file of the name `kept`, if it was added."""
        self._redactor, self._scratch, self._zipped, self._keep = redactor, scratch, zipped, kept

    def make(self, name: str, content: bytes) -> None:
        """Adds a file with this content."""
        path = self._scratch / f"made-{len(self.members)}{Path(name).suffix}"
        path.write_bytes(content)
        self.add(name, path, is_redacted=name != DIFF)

    def add(self, name: str, origin: Path, *, is_redacted: bool = False) -> None:
        """Adds a file, redacted if it is not yet."""
        if not origin.is_file():
            raise ServelabError(f"{origin}: missing, but belongs into the archive")
        path = origin
        if not is_redacted:
            try:
                path = self._redactor.member(name, origin, self._scratch / f"{len(self.members)}{origin.suffix}")
            except pa.ArrowException as error:
                raise ServelabError(f"{origin}: not a readable Parquet file: {error}") from None
            refuse_secrets(name, path)
        if _is_status(name):
            path = self._resealed(name, path)
        if name == self._keep:
            self.kept = path
        digest, size = self._store(name, path)
        self.members[name] = Member(sha256=digest, size_bytes=size, redacted=path != origin)
        if path.parent == self._scratch and path != self.kept:
            path.unlink()

    def _store(self, name: str, path: Path) -> tuple[str, int]:
        """Puts a file into the zip; its sha256 and size."""
        digest, size = hashlib.sha256(), 0
        entry = zipfile.ZipInfo(name)  # of one date, so that the same content gives the same bytes
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (stat.S_IFREG | 0o644) << 16
        big = path.stat().st_size >= zipfile.ZIP64_LIMIT
        with path.open("rb") as file, self._zipped.open(entry, "w", force_zip64=big) as output:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                size += output.write(block)
        return digest.hexdigest(), size

    def _resealed(self, name: str, path: Path) -> Path:
        """A run's status with the digests of its redacted files; the file itself if there are none."""
        folder = name.removesuffix("status.json")
        redacted = {
            other.removeprefix(folder): (each.sha256, each.size_bytes)
            for other, each in self.members.items()
            if other.startswith(folder) and each.redacted
        }
        status = json.loads(path.read_bytes()) if redacted else {}
        if not status.get("seal"):
            return path
        sealed = {other: each for other, each in redacted.items() if other in status["seal"]["files"]}
        made = self._scratch / f"resealed-{len(self.members)}.json"
        write_json(made, resealed(status, sealed))
        return made


def _is_status(name: str) -> bool:
    return name.startswith(f"{RESULTS}/runs/") and name.endswith("/status.json")


def _json_bytes(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
