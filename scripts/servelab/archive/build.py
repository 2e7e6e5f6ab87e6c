"""Writes an archive: the same content gives the same bytes. Files are streamed twice, to hash and to store them."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa
import yaml
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin

from servelab.archive.contents import LIVE, Contents
from servelab.archive.crate import crate_metadata
from servelab.archive.layout import CRATE, DIFF, MANIFEST, README, RECIPE, RESULTS, Manifest, Member, media_type
from servelab.archive.redacted_files import texts_of
from servelab.archive.redaction import Redactor
from servelab.archive.unpack import BLOCK_BYTES
from servelab.archive.workflow_source import Source
from servelab.core.credential_forms import HASH_IN_LOCK
from servelab.core.errors import Outage, ServelabError
from servelab.core.files import replacing, write_json
from servelab.core.identity import canonical_json, workload_id
from servelab.core.seal import resealed
from servelab.search.project import load_project
from servelab.study.project import Project

HEAD = """\
# The study as it was run, with every default written out. With this workflow and these digests it plans the same runs
# under the same names: put it into config/studies/ of the archive's workflow/.
"""


def recipe(root: Path, contents: Contents) -> dict[str, str]:
    """Text of the recipe by its file name; nothing for a recorded study, whose logs cannot be rerun.

    `servelab.study.study.load_study` loads it. Locks, workloads and data sets are in the archive's `workflow/`.
    """
    search = contents.searches[0]
    if not search.startswith(f"{LIVE}/"):
        return {}
    project = load_project(root / f"config/{search}.yaml", root)
    content = project.study.model_dump(mode="json", exclude_none=True)
    for alias, engine in content["engines"].items():
        engine["lock"] = project.lock(alias).relative_to(root).as_posix()
    lines = [HEAD, *(f"# {line}\n" for line in _digests(project, root)), "\n"]
    return {
        f"{project.study.study}.yaml": "".join(lines) + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    }


def _digests(project: Project, root: Path) -> list[str]:
    """Hashes of what the study names; workloads also with their parameters, the seed among them."""
    lines = []
    for alias in project.study.engines:
        lines.append(f"{project.lock(alias).relative_to(root)}: sha256 {project.environment_sha256(alias)}")
    client = project.client_spec()
    lines.append(f"load client {client.name} {client.version}")
    if client.environment_sha256 and project.client_lock:
        lines.append(f"{project.client_lock.relative_to(root)}: sha256 {client.environment_sha256}")
    for name in project.study.workloads:
        spec = project.workload_spec(name)
        made = f"{spec.kind} {spec.generator_version} with {canonical_json(spec.parameters)}"
        lines.append(f"workload {name}: {workload_id(spec)}, {made}")
    return lines


_LEFT_OUT = {
    "Base64 High Entropy String",
    "Hex High Entropy String",
    "Secret Keyword",
    "Public IP (ipv4)",
    "Basic Auth Credentials",
}


@cache
def rules() -> tuple[BasePlugin, ...]:
    """The rules of detect-secrets that are used, without their checks over a network."""
    kinds: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
    return tuple(kinds[name]() for name in sorted(kinds.keys() - _LEFT_OUT))


def refuse_secrets(name: str, path: Path) -> None:
    """`ServelabError` with place and rule if a redacted member has a secret. Prompts of a workload are not read."""
    if name.startswith("results/workloads/") and path.suffix == ".parquet":
        return
    for place, text in _lines(path):
        if HASH_IN_LOCK.fullmatch(text.rstrip("\n")):
            continue
        for rule in rules():
            if any(rule.analyze_string(text)):
                what = f"looks like a secret ({rule.secret_type}, a rule of detect-secrets), which must not be archived"
                raise ServelabError(f"{name}: {place}: {what}; remove it from the file below the project's folder")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    if path.suffix == ".parquet":
        yield from ((place, text) for place, _, text in texts_of(path, bool))
        return
    with path.open("rb") as file:
        yield from ((f"line {number}", line.decode(errors="replace")) for number, line in enumerate(file, 1))


SHOWS = "An archive shows that tables, decisions and the answer are complete and follow from its raw records."
SIGNED = "Only a signature shows who measured, and that records, pages, logs and code are as they were then."
TEXT = """\
# {title}

An archive of the study `{study}`, made by Servelab: raw records, tables, report, and the workflow that made them
(`workflow/`{commit}). Open `{report}`; the answer is in `{answer}`.

`manifest.json` has the sha256 of every file; `ro-crate-metadata.json` describes them (RO-Crate 1.1). Verify it with

    servelab verify --accept-unsigned THIS_FILE

{shows} {signed}
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
    folder = f"{RESULTS}/{contents.searches[0]}"
    return TEXT.format(
        title=contents.title,
        study=contents.study,
        commit=named,
        report=f"{folder}/report.html",
        answer=f"{folder}/recommended.json",
        shows=SHOWS,
        signed=SIGNED,
    )


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
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in sorted(members.items()):
            digest = hashlib.sha256()
            entry = zipfile.ZipInfo(name)  # of one date, so that the same content gives the same bytes
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            with archive.open(entry, "w", force_zip64=member.size_bytes >= zipfile.ZIP64_LIMIT) as output:
                for block in files.blocks(name):
                    digest.update(block)
                    output.write(block)
            if digest.hexdigest() != member.sha256:
                raise ServelabError(f"{files.origins[name]}: changed while it was archived; build the archive again")


def json_bytes(value: object) -> bytes:
    """A JSON file that describes an archive, as a build writes it."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
