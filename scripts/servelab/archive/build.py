"""Writes an archive: the same content gives the same bytes. Files are streamed twice, to hash and to store them."""

from __future__ import annotations

import hashlib
import json
import stat
import tempfile
import zipfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from textwrap import indent
from typing import Any

import pyarrow as pa
from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from servelab.archive.contents import Contents, WorkflowSource
from servelab.archive.layout import CRATE, DIFF, MANIFEST, README, RESULTS, WORKFLOW, Manifest, Member
from servelab.archive.redaction import Redactor, refuse_secrets
from servelab.archive.unpack import BLOCK_BYTES, open_archive, unpacked
from servelab.archive.verify import recompute
from servelab.core.errors import Outage, ServelabError
from servelab.core.files import replacing, write_json
from servelab.core.identity import file_sha256
from servelab.core.seal import resealed
from servelab.search.recommendation_text import answer_text
from servelab.search.recommended import Recommended

SHOWS = "An archive shows that tables, decisions and the answer are complete and follow from its raw records."
SIGNED = "Only a signature shows who measured, and that records, pages, logs and code are as they were then."
TEXT = """\
# {title}

{result}

Open `{folder}/report.html` for the figures behind it, and `{folder}/recommended.json` for the answer as data.

This is an archive of the study `{study}`, made by Servelab: raw records, tables, report, and the workflow that made
them (`workflow/`{commit}). `manifest.json` has the sha256 of every file; `ro-crate-metadata.json` describes them
(RO-Crate 1.1). Verify it, or compare it with another, with

    servelab verify --accept-unsigned THIS_FILE
    servelab compare THIS_FILE OTHER_FILE

{shows} {signed}
"""
_LICENSE = "https://spdx.org/licenses/Apache-2.0"
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}


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
            open_archive(output) as archive,
            unpacked(archive, Path(scratch), archive.members) as folder,
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

    `ServelabError` names a file that is missing, changes while it is read, or must stay unchanged and has a secret.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=output.parent) as scratch:
            files = _Files(redactor, Path(scratch))
            files.make(README, _readme(contents, source).encode())
            if source.diff:
                files.make(DIFF, source.diff)
            for name in sorted(contents.files, key=_is_status):  # a status seals the redacted files of its run
                files.add(name, contents.files[name])
            manifest = Manifest(
                study=contents.search.split("/")[1],
                title=redactor.text(contents.title),
                date=contents.date,
                searches=[contents.search],
                commit=source.commit,
                dirty=source.dirty,
                omitted=dict(sorted(contents.omitted.items())),
                members=dict(sorted(files.members.items())),
            )
            files.make(CRATE, _json_bytes(redactor.json(crate_metadata(manifest))))
            manifest = manifest.model_copy(update={"members": dict(sorted(files.members.items()))})
            files.make(MANIFEST, _json_bytes(manifest.model_dump(mode="json")))
            with replacing(output) as temporary:
                files.write(temporary)
    except OSError as error:
        raise Outage(f"{output}: cannot be written: {error.strerror or error}; fix that and run again") from None
    return manifest


def _readme(contents: Contents, source: WorkflowSource) -> str:
    """What was found, and the files to open."""
    folder = f"{RESULTS}/{contents.search}"
    answer, result = contents.files.get(f"{folder}/recommended.json"), "It has no recommendation."
    if answer is not None:
        found = Recommended.read(answer)
        result = f"{answer_text(found).text}\n\n{indent(found.command, '    ')}"
    return TEXT.format(
        title=contents.title,
        study=contents.search.split("/")[1],
        result=result,
        folder=folder,
        commit=f", commit {source.commit}" if source.commit else "",
        shows=SHOWS,
        signed=SIGNED,
    )


class _Files:
    """Files by their names in the archive, redacted where that is needed."""

    def __init__(self, redactor: Redactor, scratch: Path) -> None:
        self.members: dict[str, Member] = {}
        self._redactor, self._scratch = redactor, scratch
        self._paths: dict[str, Path] = {}

    def make(self, name: str, content: bytes) -> None:
        """Adds a file with this content."""
        path = self._scratch / f"made-{len(self.members)}{Path(name).suffix}"
        path.write_bytes(content)
        self.add(name, path, is_redacted=name in (CRATE, MANIFEST))

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
        self._paths[name] = path
        size = path.stat().st_size
        self.members[name] = Member(sha256=file_sha256(path), size_bytes=size, redacted=path != origin)

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

    def write(self, path: Path) -> None:
        """Writes all files into a zip."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, member in sorted(self.members.items()):
                digest = hashlib.sha256()
                entry = zipfile.ZipInfo(name)  # of one date, so that the same content gives the same bytes
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (stat.S_IFREG | 0o644) << 16
                big = member.size_bytes >= zipfile.ZIP64_LIMIT
                with self._paths[name].open("rb") as file, archive.open(entry, "w", force_zip64=big) as output:
                    while block := file.read(BLOCK_BYTES):
                        digest.update(block)
                        output.write(block)
                if digest.hexdigest() != member.sha256:
                    raise ServelabError(f"{name}: changed while it was archived; build the archive again")


def _is_status(name: str) -> bool:
    return name.startswith(f"{RESULTS}/runs/") and name.endswith("/status.json")


def _json_bytes(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def crate_metadata(manifest: Manifest) -> dict[str, Any]:
    """The content of `ro-crate-metadata.json`: RO-Crate 1.1, with the profiles Process and Workflow Run Crate.

    Folders are described; `manifest.json` has each file.
    """
    crate = ROCrate(version="1.1")
    root = crate.root_dataset
    root["name"] = f"{manifest.title} (study {manifest.study})"
    root["description"] = (
        f"Archive of the study {manifest.study}: raw records, tables, charts and report, with the workflow that made "
        "them. The licence is the workflow's; prompts are under the licence of their data set."
    )
    root["datePublished"] = manifest.date
    root["license"] = crate.add(ContextEntity(crate, _LICENSE, {"@type": "CreativeWork", "name": "Apache License 2.0"}))
    root["conformsTo"] = [
        crate.add(ContextEntity(crate, profile, {"@type": "CreativeWork", "name": name, "version": number}))
        for profile, (name, number) in _PROFILES.items()
    ]
    workflow = crate.add_workflow(
        dest_path=f"{WORKFLOW}/Snakefile",
        properties={"name": "Servelab", "version": manifest.commit or version("servelab")},
        main=True,
        lang="snakemake",
        lang_version=version("snakemake"),
    )
    readme = {"name": "What was found", "encodingFormat": "text/markdown", "about": root}
    crate.add_file(dest_path=README, properties=readme)
    listed = {"name": "Every file with its sha256 and size", "encodingFormat": "application/json"}
    crate.add_file(dest_path=MANIFEST, properties=listed)
    study = {"name": "The study", "encodingFormat": "application/yaml"}
    study_file = crate.add_file(dest_path=manifest.study_file, properties=study)
    results = (name.split("/") for name in manifest.members if name.startswith(f"{RESULTS}/"))
    folders = sorted({f"{'/'.join(parts[:3])}/" for parts in results})
    action = {
        "@type": "CreateAction",
        "name": f"The study {manifest.study}",
        "instrument": workflow,
        "endTime": manifest.date,
        "object": [study_file],
        "result": [crate.add_dataset(dest_path=each, properties={"name": each}) for each in (*folders, f"{WORKFLOW}/")],
    }
    root["mentions"] = [crate.add(ContextEntity(crate, "#study", action))]
    metadata: dict[str, Any] = crate.metadata.generate()
    return metadata
