"""Writes an archive: the same content gives the same bytes. Each file is redacted, hashed and stored in one pass."""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from servelab.archive.about import crate_metadata, readme
from servelab.archive.contents import Contents, WorkflowSource
from servelab.archive.layout import CRATE, MANIFEST, README, RESULTS, Manifest, Member, opened
from servelab.archive.redaction import Redactor, refuse_secrets
from servelab.archive.verify import recompute
from servelab.core.errors import Outage, ServelabError
from servelab.core.files import replacing, write_json
from servelab.core.identity import file_sha256
from servelab.core.seal import resealed


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
            files = _Files(redactor, Path(scratch), zipped)
            for name in sorted(contents.files, key=lambda name: (_is_status(name), name)):  # a status seals its run
                files.add(name, contents.files[name])
            manifest = Manifest(
                study=contents.search.split("/")[1],
                title=redactor.text(contents.title),
                date=contents.date,
                searches=[contents.search],
                commit=source.commit,
                dirty=source.dirty,
                omitted=redactor.json(contents.omitted),
                members=files.members,
            )
            files.make(README, readme(manifest, files.answer))
            files.make(CRATE, _json_text(redactor.json(crate_metadata(manifest))))
            manifest = manifest.model_copy(update={"members": files.members})
            files.make(MANIFEST, _json_text(manifest.model_dump(mode="json")))
    except OSError as error:
        raise Outage(f"{output}: cannot be written: {error.strerror or error}; fix that and run again") from None
    return manifest


class _Files:
    """Files that go into a zip by their names, redacted where that is needed."""

    def __init__(self, redactor: Redactor, scratch: Path, zipped: zipfile.ZipFile) -> None:
        self.members: dict[str, Member] = {}
        self.answer = scratch / "recommended.json"
        """The study's answer, redacted, if it was added."""
        self._redactor, self._scratch, self._zipped = redactor, scratch, zipped

    def make(self, name: str, text: str) -> None:
        """Adds a file with this text, made of what is redacted."""
        path = self._scratch / "made"
        path.write_text(text, encoding="utf-8")
        self._store(name, path, is_redacted=True)

    def add(self, name: str, origin: Path) -> None:
        """Adds a file, redacted."""
        if not origin.is_file():
            raise ServelabError(f"{origin}: missing, but belongs in the archive")
        try:
            path = self._redactor.member(name, origin, self._scratch / f"redacted{origin.suffix}")
        except pa.ArrowException as error:
            raise ServelabError(f"{origin}: not a readable Parquet file: {error}") from None
        refuse_secrets(name, path)
        if _is_status(name):
            path = self._resealed(name, path)
        self._store(name, path, is_redacted=path != origin)
        if name.startswith(RESULTS) and origin.name == self.answer.name:
            shutil.copyfile(path, self.answer)

    def _store(self, name: str, path: Path, *, is_redacted: bool) -> None:
        """Puts a file into the zip, and among the members."""
        entry = zipfile.ZipInfo(name)  # of one date, so that the same content gives the same bytes
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (stat.S_IFREG | 0o644) << 16
        size = entry.file_size = path.stat().st_size
        with path.open("rb") as file, self._zipped.open(entry, "w") as output:
            shutil.copyfileobj(file, output)
        self.members[name] = Member(sha256=file_sha256(path), size_bytes=size, redacted=is_redacted)

    def _resealed(self, name: str, path: Path) -> Path:
        """A run's status with the digests of its redacted files; the file itself if there are none."""
        status, folder = json.loads(path.read_bytes()), name.removesuffix("status.json")
        sealed = (status.get("seal") or {}).get("files", ())
        members = {each: found for each in sealed if (found := self.members.get(f"{folder}{each}")) and found.redacted}
        redacted = {each: (found.sha256, found.size_bytes) for each, found in members.items()}
        if not redacted:
            return path
        write_json(made := self._scratch / "resealed.json", resealed(status, redacted))
        return made


def _is_status(name: str) -> bool:
    return name.startswith(f"{RESULTS}/runs/") and name.endswith("/status.json")


def _json_text(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
