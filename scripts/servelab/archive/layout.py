"""Names of an archive's members, its manifest with their hashes, and its signature."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from servelab.archive.unpack import reading, shown, unpacked
from servelab.core.errors import ServelabError
from servelab.core.identity import file_sha256
from servelab.core.run_spec import Strict
from servelab.core.ssh_signature import SUFFIX, BadSignatureError, Signer, SigningKey, sign_file, verify_file
from servelab.core.yaml_file import describe_validation_error
from servelab.study.workload_loads import NAME

MANIFEST = "manifest.json"
CRATE = "ro-crate-metadata.json"
README = "README.md"
WORKFLOW = "workflow"
"""Folder of the workflow's source, with the study's configuration and locks."""
RESULTS = "results"
LIVE = "studies"
CODE = ("Snakefile", "rules", "scripts")
"""Parts of the workflow in which a new file counts as code that ran, committed or not."""
MOST_MANIFEST_BYTES = 64 * 2**20


class Member(Strict):
    """One file of an archive, after redaction (`redacted`)."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)
    redacted: bool = False


class Manifest(Strict):
    """`manifest.json`: describes an archive and lists every other member by its path."""

    format: Literal["servelab-archive/1"] = "servelab-archive/1"
    study: str = Field(pattern=NAME)
    title: str
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="When its last run ended; see `contents.date_of`.")
    searches: list[Annotated[str, Field(pattern=r"^(studies|recorded)/[a-z0-9][a-z0-9._-]*$")]] = Field(
        min_length=1, max_length=1, description="The study's folder below results/."
    )
    commit: str | None = Field(description="The workflow's commit; null outside a checkout.")
    dirty: bool | None = Field(description="Whether files differed from that commit.")
    omitted: dict[str, str] = Field({}, description="Files that are omitted, and why.")
    members: dict[str, Member]

    @property
    def search(self) -> str:
        """The study's folder below results/: `studies/<study>` or `recorded/<study>`."""
        return self.searches[0]

    @property
    def is_live(self) -> bool:
        """Whether its runs were measured, and not read from logs."""
        return self.search.startswith(f"{LIVE}/")

    @property
    def folder(self) -> str:
        """The beginning of the names of the study's own files."""
        return f"{RESULTS}/{self.search}/"

    @property
    def study_file(self) -> str:
        """The member that is the study as its author wrote it."""
        return f"{WORKFLOW}/config/{self.search}{'.yaml' if self.is_live else '/study.yaml'}"


@contextmanager
def opened(path: Path, parent: Path) -> Iterator[tuple[Manifest, Path, list[str]]]:
    """An archive unpacked below `parent`: its manifest, the folder, and a line per member that is not as listed.

    An archive that cannot be unpacked, or without a manifest, is a `ServelabError`.
    """
    with reading(str(path)), unpacked(path, parent) as folder:
        file = folder / MANIFEST
        if not file.is_file() or file.stat().st_size > MOST_MANIFEST_BYTES:
            raise ServelabError(f"{path}: {MANIFEST}: missing, or too large")
        try:
            manifest = Manifest.model_validate_json(file.read_bytes())
        except ValidationError as error:
            raise ServelabError(describe_validation_error(error, f"{path}: {MANIFEST}", Manifest)) from None
        yield manifest, folder, list(_member_faults(manifest, folder))


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _member_faults(manifest: Manifest, folder: Path) -> Iterator[str]:
    there = {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    made = (
        name for name in there if name.startswith(f"{RESULTS}/") and name.endswith(".json") and "/logs/" not in name
    )
    yield from (f"{name}: {why}" for name in (MANIFEST, *made) if (why := _fault_of_json(there[name])))
    del there[MANIFEST]
    for name in sorted(manifest.members.keys() - there.keys()):
        yield f"{shown(name)}: is in the manifest, but not in the archive"
    for name, path in there.items():
        listed = manifest.members.get(name)
        if listed is None:
            yield f"{name}: is not in the manifest"
        elif (path.stat().st_size, file_sha256(path)) != (listed.size_bytes, listed.sha256):
            yield f"{name}: has not the size and sha256 that the manifest lists"


def _fault_of_json(path: Path) -> str | None:
    """Why readers of a JSON file may see different content; None if they do not."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError("has a key twice, and readers take either value")
        return found

    try:
        json.loads(path.read_bytes(), object_pairs_hook=once)
    except ValueError as error:
        return shown(str(error))
    return None


@dataclass(frozen=True)
class ArchiveSignature:
    """The detached signature of an archive, checked against the keys that a reader trusts."""

    text: str
    """Who signed, or why that is not known."""
    signer: Signer | None = None
    faults: list[str] = field(default_factory=list)
    """One line per fault, beginning with the file."""


def signature_of(archive: Path) -> Path:
    """The file of an archive's signature."""
    return archive.parent / f"{archive.name}{SUFFIX}"


def sign_archive(archive: Path, key: SigningKey | None) -> str:
    """Signs an archive that was just built, or removes the signature of the one before; returns what was done.

    `ConfigError` if the key cannot sign.
    """
    signature_of(archive).unlink(missing_ok=True)
    return "unsigned" if key is None else f"signed as {key.identity} in {sign_file(key, archive)}"


def check_signature(archive: Path, allowed_signers: Path | None) -> ArchiveSignature:
    """Verifies the signature of an archive. With a file of trusted keys, a missing signature is a fault."""
    signature = signature_of(archive)
    if not signature.exists():
        text = "unsigned, so by whom is not known"
        return ArchiveSignature(text, faults=[f"{signature}: missing: {text}"] if allowed_signers else [])
    if allowed_signers is None:
        return ArchiveSignature("signature not checked without --allowed-signers, so by whom is not known")
    try:
        signer = verify_file(archive, signature, allowed_signers)
    except BadSignatureError as error:
        return ArchiveSignature("not signed by anyone you trust", faults=[f"{signature}: does not count: {error}"])
    return ArchiveSignature(f"signed by {signer}", signer)
