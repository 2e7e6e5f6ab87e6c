"""An archive as a file: names of its members, its manifest with their hashes, its signature, and how it is unpacked.

An archive is not trusted: names, kinds and declared sizes are checked before anything is written. Every fault is one
`ServelabError` that names the archive and the member.
"""

from __future__ import annotations

import argparse
import errno
import json
import re
import shutil
import stat
import tempfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from servelab.core.errors import Outage, ServelabError
from servelab.core.identity import file_sha256
from servelab.core.run_spec import Strict
from servelab.core.ssh_signature import SUFFIX, BadSignatureError, Signer, SigningKey, sign_file, verify_file
from servelab.core.yaml_file import describe_validation_error
from servelab.study.project import is_live
from servelab.study.workload_loads import NAME

ARCHIVE = ".zip"
MANIFEST = "manifest.json"
CRATE = "ro-crate-metadata.json"
README = "README.md"
WORKFLOW = "workflow"
"""Folder of the workflow's source, with the study's configuration and locks."""
RESULTS = "results"
CODE = ("Snakefile", "rules", "scripts")
"""Parts of the workflow in which a new file counts as code that ran, committed or not."""
MOST_MANIFEST_BYTES = 64 * 2**20
_MOST_NAME_BYTES = 255
_ODD = re.compile(r"|.*[\\:].*| .*|.*[ .]|(?:CON|PRN|AUX|NUL|(?:COM|LPT)[1-9]) *(?:\..*)?", re.IGNORECASE | re.DOTALL)
"""A part of a name that is empty, `.`, `..`, or another name or a device on Windows."""
_NAME_ERRORS = {None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL}
"""Errors of the system that the content of an archive can cause; a full disk is none of these."""


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
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="When its last run ended; see `Contents.date`.")
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
        return is_live(self.search)

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


def unpacked_study(path: Path, folder: Path) -> Path:
    """The study of an archive, unpacked into `folder`; `ServelabError` if a file is not as the manifest lists it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with opened(path, folder) as (manifest, content, faults):
        if faults:
            raise ServelabError(f"{path}: {faults[0]}; nothing was compared")
        (content / RESULTS).rename(folder / RESULTS)
    return folder / manifest.folder


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _member_faults(manifest: Manifest, folder: Path) -> Iterator[str]:
    there = {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    for name, path in there.items():
        if name == MANIFEST or (name.startswith(f"{RESULTS}/") and name.endswith(".json") and "/logs/" not in name):
            try:
                json.loads(path.read_bytes(), object_pairs_hook=_unlike)
            except ValueError as error:
                yield f"{name}: {shown(str(error))}"
    found = {name: (path.stat().st_size, file_sha256(path)) for name, path in there.items() if name != MANIFEST}
    listed = {name: (member.size_bytes, member.sha256) for name, member in manifest.members.items()}
    for name in sorted(found.keys() | listed.keys()):
        if name not in found:
            yield f"{shown(name)}: is in the manifest, but not in the archive"
        elif found[name] != listed.get(name):
            what = "has not the size and sha256 that the manifest lists" if name in listed else "is not in the manifest"
            yield f"{name}: {what}"


def _unlike(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; `ValueError` if it has a key twice."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("has a key twice, and readers take either value")
    return found


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns what the block raises about an archive's content into one `ServelabError` line that begins with `what`.

    Errors of the system become an `Outage`.
    """
    try:
        yield
    except Outage:
        raise
    except ServelabError as error:
        text = str(error)
        raise ServelabError(shown(text if text.startswith(what) else f"{what}: {text}", 1000)) from None
    except Exception as error:  # a file of another form, or one made to harm, raises anything
        if isinstance(error, OSError) and error.errno not in _NAME_ERRORS:
            raise Outage(f"{what}: {error}") from error
        why = f"has content that this workflow does not write: {type(error).__name__}: {error}"
        raise ServelabError(shown(f"{what}: {why}", 1000)) from None


def shown(text: str, most: int = 160) -> str:
    """The start of a text that an archive brings, in one line for a message."""
    line = " ".join(text[: most + 1].split())
    return "".join(each if each.isprintable() else "�" for each in line[:most]) + "…" * (len(text) > most)


@dataclass(frozen=True)
class Limits:
    """Limits of an archive; a larger one is refused before it is unpacked."""

    members: int = 100_000
    total_bytes: int = 256 * 2**30
    """All members, unpacked."""
    ratio: float = 300.0
    """Unpacked ÷ packed size, of a member or of all. Archives of studies have 3 to 20, logs 50, a bomb 1,032."""
    ratio_from_bytes: int = 64 * 2**20
    """Smaller sizes may have any ratio."""


@contextmanager
def unpacked(path: Path, parent: Path, limits: Limits = Limits()) -> Iterator[Path]:
    """A temporary folder below `parent` with all members of an archive.

    A fault of the archive is a `ServelabError`, a full disk an `Outage`.
    """
    if not path.is_file():
        raise ServelabError(f"{path}: no such file; `servelab archive STUDY` writes an archive")
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=parent, ignore_cleanup_errors=True) as folder:
        with reading(str(path)), zipfile.ZipFile(path) as zipped:
            if fault := next(_faults(zipped.infolist(), path.stat().st_size, limits), None):
                raise ServelabError(f"{path}: {fault}")
            size, free = sum(each.file_size for each in zipped.infolist()), shutil.disk_usage(folder).free
            if size > free:
                raise Outage(f"{path}: unpacks to {size:,} bytes, but {folder} has {free:,} free")
            zipped.extractall(folder)
        yield Path(folder)


def _faults(members: list[zipfile.ZipInfo], size: int, limits: Limits) -> Iterator[str]:
    if len(members) > limits.members:
        yield f"has more than {limits.members:,} members"
    names = [member.orig_filename for member in members]
    for member in members:
        if why := _fault_of_member(member):
            yield f"{shown(member.orig_filename)}: {why}"
    total, packed = sum(member.file_size for member in members), sum(member.compress_size for member in members)
    sizes = [(member.orig_filename, member.file_size, member.compress_size) for member in members]
    for name, unpacked_bytes, packed_bytes in [*sizes, ("all members", total, packed)]:
        if unpacked_bytes > max(limits.ratio * packed_bytes, limits.ratio_from_bytes):
            yield f"{shown(name)}: {unpacked_bytes:,} bytes in {packed_bytes:,}, more than {limits.ratio:g} : 1"
    if total > limits.total_bytes:
        yield f"declares {total:,} bytes, more than {limits.total_bytes:,}"
    held = packed + sum(2 * len(name.encode()) for name in names) + 76 * len(members) + 22
    if size != held and total < zipfile.ZIP64_LIMIT and len(members) < zipfile.ZIP_FILECOUNT_LIMIT:
        yield f"has {size - held:,} bytes that belong to no member"
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    counts = Counter(path.casefold() for path in (*names, *folders))
    yield from (f"{shown(path)}: is there twice to some systems" for path, count in counts.items() if count > 1)


def _fault_of_member(member: zipfile.ZipInfo) -> str | None:
    """Why a member may not be there; None if it is a file of one relative path on every system."""
    if member.is_dir() or stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        return "is no file: an archive has neither links nor folders"
    if member.flag_bits & 0x1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is encrypted, or packed by a method that this workflow does not use"
    name = member.orig_filename
    is_shown = name.isprintable() and unicodedata.normalize("NFKC", name) == name
    is_odd = len(name.encode(errors="surrogatepass")) > _MOST_NAME_BYTES or any(map(_ODD.fullmatch, name.split("/")))
    return "its name is too long, no relative path, or another one on some systems" if is_odd or not is_shown else None


ACCEPT = "--accept-unsigned"


def add_signature_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which archives are accepted."""
    parser.add_argument(
        ACCEPT, action="store_true", help="accept archives without a signature that you check, if all in them agrees"
    )
    parser.add_argument(
        "--allowed-signers",
        type=Path,
        metavar="KEYS",
        help="keys that you trust (ssh-keygen(1)): signatures are checked",
    )


@dataclass(frozen=True)
class ArchiveSignature:
    """The detached signature of an archive, checked against the keys that a reader trusts."""

    text: str
    """Who signed, or why that is not known."""
    signer: Signer | None = None
    faults: tuple[str, ...] = ()
    """One line per fault, beginning with the file."""

    def refusals(self, *, accepts_unsigned: bool) -> Sequence[str]:
        """Why the archive is not accepted: faults, or no signature that was checked."""
        is_enough = self.signer or accepts_unsigned
        return self.faults or ([] if is_enough else [f"not signed: accept it with {ACCEPT} if you trust its origin"])


def signature_of(archive: Path) -> Path:
    """The file of an archive's signature."""
    return archive.with_name(archive.name + SUFFIX)


def sign_archive(archive: Path, key: SigningKey | None) -> str:
    """Signs an archive that was just built, or removes the signature of the one before; returns what was done.

    `ConfigError` if the key cannot sign.
    """
    signature_of(archive).unlink(missing_ok=True)
    return "unsigned" if key is None else f"signed as {key.identity} in {sign_file(key, archive)}"


def check_signature(archive: Path, allowed_signers: Path | None) -> ArchiveSignature:
    """Verifies the signature of an archive by a file of trusted keys."""
    signature = signature_of(archive)
    if not signature.exists():
        return ArchiveSignature("unsigned, so by whom is not known")
    if allowed_signers is None:
        return ArchiveSignature("signature not checked without --allowed-signers, so by whom is not known")
    try:
        signer = verify_file(archive, signature, allowed_signers)
    except BadSignatureError as error:
        return ArchiveSignature("not signed by anyone you trust", faults=(f"{signature}: does not count: {error}",))
    return ArchiveSignature(f"signed by {signer}", signer)
